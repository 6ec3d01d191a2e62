-- Disks that no project has any more, and from when on what they hold may be removed from the engine: at once after
-- a delete, later for what the database never knew, as after an older backup was restored.
CREATE TABLE unused_disks (
    id         TEXT PRIMARY KEY,
    remove_at  BIGINT NOT NULL
);
CREATE INDEX unused_disks_by_time ON unused_disks (remove_at);
