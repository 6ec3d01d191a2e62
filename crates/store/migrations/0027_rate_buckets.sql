-- Rate limits that the nodes of an installation share: what all of them have used of the requests or tokens of a key or
-- workspace, in fractions of a unit. `rate` fractions leak in a microsecond; `used` is as of `at`, in microseconds of
-- the database's clock. With SQLite there is one node, and nothing is in it. Emptied by a crash of PostgreSQL: nodes
-- fill it again with what they have used themselves.
CREATE {UNLOGGED} TABLE rate_buckets (
    bucket  TEXT PRIMARY KEY,
    used    BIGINT NOT NULL,
    rate    BIGINT NOT NULL,
    at      BIGINT NOT NULL
);
