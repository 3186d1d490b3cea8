package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"solojob/fence"
	"solojob/fence/fencesql"
	"solojob/fence/internal/proof"
)

// A run that is stopped between its read and its transaction, while its successor
// writes, is refused when it wakes, and learns why.
func TestStoppedWriterIsRefused(t *testing.T) {
	db, address := database(t, "")
	env := databaseVariable + "=" + address
	outcome := proof.RunStopped(t, "fenced", 1, "between read and write", func() {
		if successor := proof.Run(t, "fenced", 2, env); successor.Status != 0 {
			t.Fatalf("the successor failed: %+v", successor)
		}
	}, env)
	if outcome.Status != fence.ExitStale {
		t.Fatalf("the stale run ended with %+v, want status %d", outcome, fence.ExitStale)
	}
	mustHold(t, db, "stopped", proof.State{Fence: 2, Value: 2})
}

// A run that is stopped inside its transaction holds the guard's lock until
// PostgreSQL ends its session; the successor then writes, and the sleeper finds its
// transaction gone and, trying again, that it is stale.
func TestWriterStoppedInsideItsTransactionIsRefused(t *testing.T) {
	db, address := database(t, "?options=-c%20idle_in_transaction_session_timeout%3D3s")
	env := databaseVariable + "=" + address
	outcome := proof.RunStopped(t, "fenced", 1, "inside the transaction", func() {
		if successor := proof.Run(t, "fenced", 2, env); successor.Status != 0 {
			t.Fatalf("the successor failed: %+v", successor)
		}
	}, env)
	if outcome.Status != fence.ExitStale || !strings.Contains(outcome.Stderr, "trying again after") {
		t.Fatalf("the stale run ended with %+v, want a lost transaction and then status %d", outcome, fence.ExitStale)
	}
	mustHold(t, db, "stopped", proof.State{Fence: 2, Value: 2})
}

// register is a recipe in a real PostgreSQL, one row per seed.
type register struct {
	db    *sql.DB
	name  string
	write func(r register, mine proof.State, before func() bool) error
}

func (r register) Read() (proof.State, error) { return read(context.Background(), r.db, r.name) }

// Write tries again where the other writer holds the lock: the schedule is one
// thread, so waiting for it would be for ever.
func (r register) Write(_ int, mine proof.State, before func() bool) error {
	for before() {
		err := r.write(r, mine, before)
		var failure *pgconn.PgError
		if errors.As(err, &failure) && failure.Code == lockNotAvailable {
			continue
		}
		return err
	}
	return proof.ErrCrashed
}

// lockNotAvailable is the SQLSTATE that lock_timeout ends a statement with.
const lockNotAvailable = "55P03"

func registers(t *testing.T, write func(register, proof.State, func() bool) error) func(uint64) proof.Recipe {
	t.Helper()
	db, _ := database(t, "?options=-c%20lock_timeout%3D2ms%20-c%20synchronous_commit%3Doff")
	return func(seed uint64) proof.Recipe {
		return register{db: db, name: strconv.FormatUint(seed, 10), write: write}
	}
}

// In a thousand random interleavings of writers and a crash, each statement of
// their transactions being a step, the row behaves as one register that only ever
// accepts the highest fence.
func TestFencedTransactionHoldsInEveryInterleaving(t *testing.T) {
	fenced := func(r register, mine proof.State, before func() bool) error {
		return write(context.Background(), r.db, fencesql.Guard{Resource: r.name, Fence: mine.Fence}, mine.Value, before)
	}
	if violations := proof.Violations(t, registers(t, fenced)); len(violations) > 0 {
		t.Fatalf("%d of %d interleavings are wrong; the first:\n%s", len(violations), proof.Interleavings, violations[0])
	}
}

// The wrong recipe fails the same test, although it reads, compares and writes in
// one transaction: what it read is not locked.
func TestReadCompareWriteIsCaught(t *testing.T) {
	unfenced := func(r register, mine proof.State, before func() bool) error {
		ctx := context.Background()
		tx, err := r.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var stored proof.State
		err = tx.QueryRowContext(ctx, readRegister, r.name).Scan(&stored.Fence, &stored.Value)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if refusal := fence.Judge(stored.Fence, mine.Fence, false); refusal != nil {
			return refusal
		}
		if !before() {
			return proof.ErrCrashed
		}
		if _, err := tx.ExecContext(ctx, setRegister, r.name, mine.Fence, mine.Value); err != nil {
			return err
		}
		if !before() {
			return proof.ErrCrashed
		}
		return tx.Commit()
	}
	violation := proof.FirstViolation(t, registers(t, unfenced))
	if violation == "" {
		t.Fatalf("no interleaving of %d shows what is wrong with a check before a write", proof.Interleavings)
	}
	t.Logf("the first that is wrong:\n%s", violation)
}
