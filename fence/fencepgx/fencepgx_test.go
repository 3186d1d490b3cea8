package fencepgx_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"solojob/fence"
	"solojob/fence/fencepgx"
	"solojob/fence/fencesql"
	"solojob/fence/internal/proof"
)

// databaseVariable tells a job in a process of its own where the database is.
const databaseVariable = "FENCE_TEST_DATABASE"

func TestMain(m *testing.M) {
	proof.Main(m, map[string]proof.Job{"fenced": fencedJob})
}

// fencedJob reads the ledger, and then writes its own fence into it.
func fencedJob(f int64, at func(string)) error {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Getenv(databaseVariable))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	if _, err := total(ctx, connection); err != nil {
		return err
	}
	at("between read and write")
	return write(ctx, connection, fencesql.Guard{Resource: "ledger", Fence: f}, f)
}

func write(ctx context.Context, connection *pgx.Conn, guard fencesql.Guard, value int64) error {
	return pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		if err := fencepgx.Raise(ctx, tx, guard); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE ledger SET total = $1", value)
		return err
	})
}

func total(ctx context.Context, connection *pgx.Conn) (int64, error) {
	var value int64
	err := connection.QueryRow(ctx, "SELECT total FROM ledger").Scan(&value)
	return value, err
}

func ledger(t *testing.T) (*pgx.Conn, string) {
	t.Helper()
	address := proof.Database(t)
	connection, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close(context.Background()) })
	for _, statement := range []string{
		fencesql.CreateTable,
		"CREATE TABLE ledger (total bigint NOT NULL)",
		"INSERT INTO ledger VALUES (0)",
	} {
		if _, err := connection.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return connection, address
}

func mustTotal(t *testing.T, connection *pgx.Conn, want int64) {
	t.Helper()
	if got, err := total(t.Context(), connection); err != nil || got != want {
		t.Fatalf("the ledger shows %d (%v), want %d", got, err, want)
	}
}

// A run that is stopped between its read and its transaction, while its successor
// writes, is refused when it wakes, and learns why.
func TestStoppedWriterIsRefused(t *testing.T) {
	connection, address := ledger(t)
	env := databaseVariable + "=" + address
	outcome := proof.RunStopped(t, "fenced", 1, "between read and write", func() {
		if successor := proof.Run(t, "fenced", 2, env); successor.Status != 0 {
			t.Fatalf("the successor failed: %+v", successor)
		}
	}, env)
	if outcome.Status != fence.ExitStale {
		t.Fatalf("the stale run ended with %+v, want status %d", outcome, fence.ExitStale)
	}
	mustTotal(t, connection, 2)
}

// Many transactions per run, or one, and never one of an older run.
func TestRaise(t *testing.T) {
	connection, _ := ledger(t)
	for i, step := range []struct {
		fence int64
		once  bool
		want  error
	}{
		{5, false, nil}, {5, false, nil}, {4, false, fence.ErrStale}, {5, true, fence.ErrAlreadyWritten},
		{6, true, nil}, {6, true, fence.ErrAlreadyWritten}, {5, true, fence.ErrStale}, {6, false, nil},
	} {
		guard := fencesql.Guard{Resource: "ledger", Fence: step.fence, Once: step.once}
		before, err := total(t.Context(), connection)
		if err != nil {
			t.Fatal(err)
		}
		want := before
		if step.want == nil {
			want = int64(i + 100)
		}
		if err := write(t.Context(), connection, guard, int64(i+100)); !errors.Is(err, step.want) {
			t.Fatalf("step %d, %+v: %v, want %v", i, guard, err, step.want)
		}
		mustTotal(t, connection, want)
	}
}

// A job that ignores the refusal can't commit what it writes after it.
func TestRefusedTransactionCannotBeCommitted(t *testing.T) {
	connection, _ := ledger(t)
	if err := write(t.Context(), connection, fencesql.Guard{Resource: "ledger", Fence: 6}, 60); err != nil {
		t.Fatal(err)
	}
	tx, err := connection.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if err := fencepgx.Raise(t.Context(), tx, fencesql.Guard{Resource: "ledger", Fence: 5}); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("Raise = %v, want ErrStale", err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE ledger SET total = 50"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Fatalf("a write after the refusal: %v, want ErrTxClosed", err)
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxClosed) {
		t.Fatalf("the commit after the refusal: %v, want ErrTxClosed", err)
	}
	mustTotal(t, connection, 60)
}
