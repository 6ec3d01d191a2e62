-- Names of projects that were deleted: reserved for their last owner for a while, and remembered for longer, because
-- DNS records of others may still lead to them. A row may outlive its owner.
CREATE TABLE former_names (
    name            TEXT PRIMARY KEY,
    owner_id        TEXT NOT NULL,
    reserved_until  BIGINT NOT NULL,
    -- Whether projects of different owners have had the name.
    changed_hands   BOOLEAN NOT NULL,
    at              BIGINT NOT NULL
);
CREATE INDEX former_names_by_owner ON former_names (owner_id, at);
CREATE INDEX former_names_by_time ON former_names (at);
