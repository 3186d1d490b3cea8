package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"solojob/fence"
	"solojob/fence/fencesql"
	"solojob/fence/internal/proof"
)

// databaseVariable tells a job in a process of its own where the database is.
const databaseVariable = "FENCE_TEST_DATABASE"

func TestMain(m *testing.M) {
	proof.Main(m, map[string]proof.Job{"fenced": fencedJob})
}

// fencedJob reads a register, and then writes its own fence into it as the value.
func fencedJob(f int64, at func(string)) error {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv(databaseVariable))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := read(ctx, db, "stopped"); err != nil {
		return err
	}
	at("between read and write")
	err = write(ctx, db, fencesql.Guard{Resource: "stopped", Fence: f}, int(f), func() bool {
		at("inside the transaction")
		return true
	})
	// A lost session is an unknown outcome: the job tries again, as any job would.
	if err != nil && !errors.Is(err, fence.ErrStale) {
		fmt.Fprintln(os.Stderr, "trying again after:", err)
		err = write(ctx, db, fencesql.Guard{Resource: "stopped", Fence: f}, int(f), func() bool { return true })
	}
	return err
}

// write is the recipe of the package comment, with a call of before ahead of each
// statement but the first.
func write(ctx context.Context, db *sql.DB, guard fencesql.Guard, value int, before func() bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := guard.Raise(ctx, tx); err != nil {
		return err
	}
	if !before() {
		return proof.ErrCrashed
	}
	if _, err := tx.ExecContext(ctx, setRegister, guard.Resource, guard.Fence, value); err != nil {
		return err
	}
	if !before() {
		return proof.ErrCrashed
	}
	return tx.Commit()
}

const (
	createRegisters = `CREATE TABLE registers (name text PRIMARY KEY, fence bigint NOT NULL, value bigint NOT NULL)`
	readRegister    = `SELECT fence, value FROM registers WHERE name = $1`
	setRegister     = `INSERT INTO registers VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, value = excluded.value`
)

// database makes the tables that a test writes. Its fence column of registers is
// only for the test to see who wrote; what guards it is the row in solojob_fence.
func database(t testing.TB, options string) (*sql.DB, string) {
	t.Helper()
	address := proof.Database(t) + options
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, statement := range []string{fencesql.CreateTable, createRegisters} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return db, address
}

func read(ctx context.Context, db *sql.DB, name string) (proof.State, error) {
	var state proof.State
	err := db.QueryRowContext(ctx, readRegister, name).Scan(&state.Fence, &state.Value)
	if errors.Is(err, sql.ErrNoRows) {
		return proof.State{}, nil
	}
	return state, err
}

func mustHold(t *testing.T, db *sql.DB, name string, want proof.State) {
	t.Helper()
	if got, err := read(t.Context(), db, name); err != nil || got != want {
		t.Fatalf("the register holds %+v (%v), want %+v", got, err, want)
	}
}

func onwards() bool { return true }

// One run may commit many transactions; an older one never again.
func TestManyTransactionsPerRun(t *testing.T) {
	db, _ := database(t, "")
	for i, step := range []struct {
		fence int64
		want  error
	}{{5, nil}, {5, nil}, {4, fence.ErrStale}, {6, nil}, {5, fence.ErrStale}, {6, nil}} {
		err := write(t.Context(), db, fencesql.Guard{Resource: "many", Fence: step.fence}, i, onwards)
		if !errors.Is(err, step.want) {
			t.Fatalf("step %d, fence %d: %v, want %v", i, step.fence, err, step.want)
		}
	}
	mustHold(t, db, "many", proof.State{Fence: 6, Value: 5})
}

// With Once, a second transaction of the same run is refused as already written.
func TestOneTransactionPerRun(t *testing.T) {
	db, _ := database(t, "")
	for i, step := range []struct {
		fence int64
		want  error
	}{{5, nil}, {5, fence.ErrAlreadyWritten}, {4, fence.ErrStale}, {6, nil}, {5, fence.ErrStale}} {
		err := write(t.Context(), db, fencesql.Guard{Resource: "once", Fence: step.fence, Once: true}, i, onwards)
		if !errors.Is(err, step.want) {
			t.Fatalf("step %d, fence %d: %v, want %v", i, step.fence, err, step.want)
		}
	}
	mustHold(t, db, "once", proof.State{Fence: 6, Value: 3})
}

// A job that ignores the refusal can't commit what it writes after it.
func TestRefusedTransactionCannotBeCommitted(t *testing.T) {
	db, _ := database(t, "")
	if err := write(t.Context(), db, fencesql.Guard{Resource: "ignored", Fence: 6}, 60, onwards); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := (fencesql.Guard{Resource: "ignored", Fence: 5}).Raise(t.Context(), tx); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("Raise = %v, want ErrStale", err)
	}
	if _, err := tx.ExecContext(t.Context(), setRegister, "ignored", 5, 50); !errors.Is(err, sql.ErrTxDone) {
		t.Fatalf("a write after the refusal: %v, want ErrTxDone", err)
	}
	if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
		t.Fatalf("the commit after the refusal: %v, want ErrTxDone", err)
	}
	mustHold(t, db, "ignored", proof.State{Fence: 6, Value: 60})
}

// A transaction that is rolled back has raised nothing, and guards of different
// resources know nothing of each other.
func TestRaiseIsPartOfTheTransaction(t *testing.T) {
	db, _ := database(t, "")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := (fencesql.Guard{Resource: "abandoned", Fence: 9}).Raise(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), db, fencesql.Guard{Resource: "another", Fence: 3}, 1, onwards); err != nil {
		t.Fatalf("another resource, meanwhile: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), db, fencesql.Guard{Resource: "abandoned", Fence: 8}, 1, onwards); err != nil {
		t.Fatalf("a lower fence after the rollback: %v", err)
	}
}

// Under SERIALIZABLE a stale run that began before the newer one committed gets a
// serialization failure, and on its next attempt the word stale.
func TestSerializableRunLearnsThatItIsStale(t *testing.T) {
	db, _ := database(t, "")
	if err := write(t.Context(), db, fencesql.Guard{Resource: "strict", Fence: 1}, 1, onwards); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), readRegister, "strict"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	if err := write(t.Context(), db, fencesql.Guard{Resource: "strict", Fence: 2}, 2, onwards); err != nil {
		t.Fatal(err)
	}
	err = fencesql.Guard{Resource: "strict", Fence: 1}.Raise(t.Context(), tx)
	var failure *pgconn.PgError
	if !errors.As(err, &failure) || failure.Code != "40001" {
		t.Fatalf("Raise with an old snapshot: %v, want SQLSTATE 40001", err)
	}
	if err := write(t.Context(), db, fencesql.Guard{Resource: "strict", Fence: 1}, 1, onwards); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("the next attempt: %v, want ErrStale", err)
	}
}
