-- Whose the slices were that others have settled lately: a call that ends late after all is corrected
-- there.
CREATE TABLE settled_slices (
    id            TEXT PRIMARY KEY,
    subject       TEXT NOT NULL,
    period        TEXT NOT NULL,
    period_start  BIGINT NOT NULL,
    settled_at    BIGINT NOT NULL
);
CREATE INDEX settled_slices_by_time ON settled_slices (settled_at);
