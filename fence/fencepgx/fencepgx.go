// Package fencepgx is package fencesql for those who use pgx by itself. What
// fencesql says of tables, locks and isolation levels holds here as well.
package fencepgx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"solojob/fence/fencesql"
)

// Raise stores the guard's fence in its row, as part of tx, or refuses: with
// fence.ErrStale or fence.ErrAlreadyWritten, as fencesql.Guard.Raise does. After
// a refusal tx has been rolled back. tx must be the outermost transaction: one
// begun inside another is a savepoint, and rolls back no further.
func Raise(ctx context.Context, tx pgx.Tx, guard fencesql.Guard) error {
	raised, err := tx.Exec(ctx, guard.Statement(), guard.Resource, guard.Fence)
	if err != nil {
		return fmt.Errorf("raise the fence of %q: %w", guard.Resource, err)
	}
	if raised.RowsAffected() == 1 {
		return nil
	}
	var stored int64
	err = tx.QueryRow(ctx, fencesql.Stored, guard.Resource).Scan(&stored)
	if err = errors.Join(err, tx.Rollback(ctx)); err != nil {
		return fmt.Errorf("the fence of %q was refused, and reading it failed: %w", guard.Resource, err)
	}
	return fmt.Errorf("%q: %w", guard.Resource, guard.Refusal(stored))
}
