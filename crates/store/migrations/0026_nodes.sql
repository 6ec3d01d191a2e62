-- The servers that share this database, a row per run. `seen_at` is by the clock of the database and moves every two
-- seconds, so no index may have it: without one the row is updated in its page (HOT), and nothing grows. With SQLite
-- there is one server, which writes no row.
CREATE TABLE nodes (
    id                TEXT PRIMARY KEY,
    hostname          TEXT NOT NULL,
    version           TEXT NOT NULL,
    platform_address  TEXT NOT NULL,
    ai_address        TEXT NOT NULL,
    edge_address      TEXT NOT NULL,
    has_engine        BOOLEAN NOT NULL,
    started_at        BIGINT NOT NULL,
    seen_at           BIGINT NOT NULL
);
