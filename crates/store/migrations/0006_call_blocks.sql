-- Calls that were never on record as open, as many as were written together: a row for each would
-- cost more than relaying it. The first and the last are at most a minute apart.
CREATE TABLE call_blocks (
    workspace_id  TEXT NOT NULL,
    last_id       TEXT NOT NULL,
    first_id      TEXT NOT NULL,
    calls         BIGINT NOT NULL,
    cost_nanos    BIGINT NOT NULL,
    data          {BYTES} NOT NULL,
    PRIMARY KEY (workspace_id, last_id)
);
