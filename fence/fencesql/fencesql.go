// Package fencesql fences a job's transactions in PostgreSQL (or SQLite, from
// 3.24) through database/sql.
//
// One row per guarded resource holds the highest fence that has written it:
//
//	CREATE TABLE solojob_fence (resource text PRIMARY KEY, fence bigint NOT NULL)
//
// [Guard.Raise] is the first statement of a transaction. It refuses if a newer run
// has written, else stores our fence; and the transaction makes that one atomic
// step with the writes that follow it:
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	defer tx.Rollback()
//	if err := guard.Raise(ctx, tx); err != nil {
//		return err // errors.Is(err, fence.ErrStale): stop
//	}
//	_, err = tx.ExecContext(ctx, "UPDATE ledger SET total = $1", total)
//	...
//	return tx.Commit()
//
// # Why first
//
// Raise locks the row until the transaction ends, so transactions that guard the
// same resource run one after another, and what is read after Raise can't change
// before the commit. Read whatever you compute the new values from after it.
//
// # A run that stops inside a transaction
//
// A frozen run that has raised the fence but not committed holds that lock, and
// its successor waits for it. Nothing wrong can be written, but nothing at all
// is, until PostgreSQL ends the sleeper's session. Set its patience to about the
// length of the lease, in the job's connection string
//
//	options='-c idle_in_transaction_session_timeout=30s'
//
// and tcp_user_timeout on the server, for a machine that has vanished while a
// statement ran. When the sleeper wakes, its transaction is gone: its commit
// fails, and its next Raise says that it is stale.
//
// # Isolation levels
//
// READ COMMITTED (PostgreSQL's default) is enough. Under REPEATABLE READ and
// SERIALIZABLE a concurrent raise ends ours with SQLSTATE 40001; try the
// transaction again, as those levels always ask, and Raise says who is stale.
package fencesql

import (
	"context"
	"database/sql"
	"fmt"

	"solojob/fence"
)

// CreateTable makes the table of guard rows. Run it once, where you create your
// own tables.
const CreateTable = `CREATE TABLE IF NOT EXISTS solojob_fence (resource text PRIMARY KEY, fence bigint NOT NULL)`

// The statements of a guard. An INSERT whose ON CONFLICT branch has a false
// WHERE changes no row, but locks the existing one all the same:
// https://www.postgresql.org/docs/current/sql-insert.html#SQL-ON-CONFLICT
const (
	// RaiseMany accepts any number of transactions per run: stored <= mine.
	RaiseMany = `INSERT INTO solojob_fence (resource, fence) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE solojob_fence.fence <= excluded.fence`

	// RaiseOnce accepts one transaction per run: stored < mine.
	RaiseOnce = `INSERT INTO solojob_fence (resource, fence) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE solojob_fence.fence < excluded.fence`

	// Stored reads the fence that refused us.
	Stored = `SELECT fence FROM solojob_fence WHERE resource = $1`
)

// A Guard fences transactions with the fence of one run.
type Guard struct {
	// Resource names what is guarded: any text, the same in every transaction
	// that writes the resource. Transactions with different resources don't
	// wait for each other.
	Resource string

	// Fence is the fence of this run, from [fence.FromEnv].
	Fence int64

	// Once accepts one transaction per run (stored < Fence) instead of many
	// (stored <= Fence). See package fence for which is right.
	Once bool
}

// Statement is the statement that raises the guard's row.
func (g Guard) Statement() string {
	if g.Once {
		return RaiseOnce
	}
	return RaiseMany
}

// Raise stores our fence in the guard's row, as part of tx, or refuses: with
// fence.ErrStale if a newer run has written, with fence.ErrAlreadyWritten if
// Once is set and this run has. After a refusal tx has been rolled back, so that
// an ignored error can't be followed by a commit.
//
// It takes a transaction and not a database: a guard that is raised by itself,
// before the write and not with it, is not a fence. A savepoint is part of its
// transaction, so rolling back to one from before Raise takes the fence back;
// write nothing that is to be fenced before Raise.
func (g Guard) Raise(ctx context.Context, tx *sql.Tx) error {
	result, err := tx.ExecContext(ctx, g.Statement(), g.Resource, g.Fence)
	if err != nil {
		return fmt.Errorf("raise the fence of %q: %w", g.Resource, err)
	}
	raised, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("raise the fence of %q: %w", g.Resource, err)
	}
	if raised == 1 {
		return nil
	}
	var stored int64
	err = tx.QueryRowContext(ctx, Stored, g.Resource).Scan(&stored)
	if rollback := tx.Rollback(); err == nil {
		err = rollback
	}
	if err != nil {
		return fmt.Errorf("the fence of %q was refused, and reading it failed: %w", g.Resource, err)
	}
	return fmt.Errorf("%q: %w", g.Resource, g.Refusal(stored))
}

// Refusal is the error for a guard row that was not raised because it shows
// stored.
func (g Guard) Refusal(stored int64) error {
	if refusal := fence.Judge(stored, g.Fence, g.Once); refusal != nil {
		return refusal
	}
	return fmt.Errorf("the guard's row refused fence %d but shows %d: has it been changed by hand?", g.Fence, stored)
}
