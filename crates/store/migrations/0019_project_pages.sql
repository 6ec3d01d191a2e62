-- Who made a release; none when the server did, or when it was made before this was written down.
ALTER TABLE releases ADD COLUMN created_by TEXT;

-- What visitors of a project got and what its instances used, per step of time. `step` is its length in seconds: minutes
-- are kept for an hour, half hours for a week. Each column is a sum, so that several nodes add to one row. `t0` to `t9`
-- are a histogram of the time to respond.
CREATE TABLE project_traffic (
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    step        BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    requests    BIGINT NOT NULL,
    errors      BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    samples     BIGINT NOT NULL,
    cpu_millis  BIGINT NOT NULL,
    memory_kib  BIGINT NOT NULL,
    t0          BIGINT NOT NULL,
    t1          BIGINT NOT NULL,
    t2          BIGINT NOT NULL,
    t3          BIGINT NOT NULL,
    t4          BIGINT NOT NULL,
    t5          BIGINT NOT NULL,
    t6          BIGINT NOT NULL,
    t7          BIGINT NOT NULL,
    t8          BIGINT NOT NULL,
    t9          BIGINT NOT NULL,
    PRIMARY KEY (project_id, step, at)
);
CREATE INDEX project_traffic_by_time ON project_traffic (step, at);
