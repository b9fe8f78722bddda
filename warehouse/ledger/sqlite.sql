CREATE TABLE IF NOT EXISTS effects (
  key TEXT PRIMARY KEY, stage TEXT NOT NULL, blob TEXT NOT NULL, finished_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, stage TEXT NOT NULL, partition TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('started', 'done', 'failed', 'unknown')),
  run_id TEXT NOT NULL, pid INTEGER NOT NULL, process_started TEXT NOT NULL,
  started_at REAL NOT NULL, finished_at REAL, scope TEXT NOT NULL, reserved_usd REAL NOT NULL,
  model TEXT NOT NULL DEFAULT '', prompt_tokens INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0, usd REAL NOT NULL DEFAULT 0, error TEXT, batch TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS attempts_by_key ON attempts (key, status);
CREATE TABLE IF NOT EXISTS batches (
  name TEXT PRIMARY KEY, state TEXT NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS budgets (scope TEXT PRIMARY KEY, limit_usd REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (
  scope TEXT NOT NULL, number INTEGER NOT NULL, id TEXT NOT NULL, opened_at REAL NOT NULL,
  closed_at REAL, PRIMARY KEY (scope, number)
) WITHOUT ROWID;
-- What was paid, so that a reservation need not add up every attempt there ever was: with 300,000
-- attempts that sum took longer than the answer.
CREATE TABLE IF NOT EXISTS paid (scope TEXT PRIMARY KEY, usd REAL NOT NULL) WITHOUT ROWID;
INSERT INTO paid SELECT scope, SUM(usd) FROM attempts
  WHERE NOT EXISTS (SELECT 1 FROM paid) GROUP BY scope;
CREATE INDEX IF NOT EXISTS attempts_held ON attempts (scope, reserved_usd)
  WHERE status IN ('started', 'unknown');
CREATE INDEX IF NOT EXISTS attempts_of_batch ON attempts (batch, status) WHERE batch <> '';
