#!/bin/sh
# Adds up each day's orders: a scheduled job in shell, fenced in PostgreSQL.
# Everything is one transaction that begins by raising the fence, so a run that was
# frozen anywhere, and thaws after its successor, changes nothing.
set -eu

: "${FENCE:?is not set: start this job with solojob, or try it by hand with FENCE=1}"
: "${DATABASE_URL:?is not set: it names the PostgreSQL database}"

if ! error=$(psql "$DATABASE_URL" -q -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -v fence="$FENCE" 2>&1 <<'SQL'
SET idle_in_transaction_session_timeout = '30s'; -- a frozen run must not hold the guard's lock for ever
BEGIN;
CALL raise_fence('daily_totals', :fence);
INSERT INTO daily_totals (day, cents, by_fence)
  SELECT placed::date, sum(cents), :fence FROM orders GROUP BY 1
ON CONFLICT (day) DO UPDATE SET cents = excluded.cents, by_fence = excluded.by_fence;
COMMIT;
SQL
)
then
  echo "$error" >&2
  case $error in
    *SJ001*) exit 79 ;; # a newer run has written: nothing to retry
  esac
  exit 1
fi
echo "totals written by the run with fence $FENCE"
