-- What the job reads and writes, and the guard of docs/FENCING.md. Safe to run again.
CREATE TABLE IF NOT EXISTS orders (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  placed timestamptz NOT NULL DEFAULT now(),
  cents  bigint NOT NULL
);
INSERT INTO orders (cents) VALUES (1200), (3400), (560);

CREATE TABLE IF NOT EXISTS daily_totals (
  day      date PRIMARY KEY,
  cents    bigint NOT NULL,
  by_fence bigint NOT NULL -- to see which run wrote it; what guards it is the row below
);

CREATE TABLE IF NOT EXISTS solojob_fence (resource text PRIMARY KEY, fence bigint NOT NULL);

CREATE OR REPLACE PROCEDURE raise_fence(guarded text, mine bigint) LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO solojob_fence AS stored (resource, fence) VALUES (guarded, mine)
  ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE stored.fence <= excluded.fence;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'fence % is stale: a newer run has written %', mine, guarded USING ERRCODE = 'SJ001';
  END IF;
END $$;
