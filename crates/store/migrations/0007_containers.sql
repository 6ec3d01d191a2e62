-- Projects that run: images, what instances are told, disks and logs.

-- The name of this installation among others that use the same engine; one row.
CREATE TABLE installation (
    slot  BIGINT PRIMARY KEY,
    name  TEXT NOT NULL
);

-- Images that were built or fetched for releases. Several releases may run one (roll back, new
-- environment variables); the engine knows it by the project and by the release that it was made for.
CREATE TABLE images (
    id          TEXT PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    command     TEXT,
    volumes     TEXT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX images_by_project ON images (project_id);

-- The image that a release runs, once it is there.
ALTER TABLE releases ADD COLUMN image_id TEXT;
CREATE INDEX releases_by_image ON releases (image_id) WHERE image_id IS NOT NULL;
-- The files that its artifact was built from, when they are not the artifact themselves.
ALTER TABLE releases ADD COLUMN origin_id TEXT;
CREATE INDEX releases_by_origin ON releases (origin_id) WHERE origin_id IS NOT NULL;
-- The environment variables of its instances, sealed, as they were when it was deployed.
ALTER TABLE releases ADD COLUMN env {BYTES};

-- Raised by a restart: instances of another revision are replaced.
ALTER TABLE projects ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
-- Why its instances do not run, while they do not.
ALTER TABLE projects ADD COLUMN fail_reason TEXT;

-- Persistent volumes.
CREATE TABLE disks (
    id          TEXT PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    size_gb     BIGINT NOT NULL,
    created_at  BIGINT NOT NULL,
    UNIQUE (project_id, name)
);

-- What instances wrote, many lines to a compressed block; times are nanoseconds since the epoch. Within a
-- project numbers rise in the order of commits: who has read a block has seen all before it.
CREATE TABLE log_blocks (
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    number      BIGINT NOT NULL,
    release_id  TEXT NOT NULL,
    instance    TEXT NOT NULL,
    first_at    BIGINT NOT NULL,
    last_at     BIGINT NOT NULL,
    lines       BIGINT NOT NULL,
    size        BIGINT NOT NULL,
    data        {BYTES} NOT NULL,
    PRIMARY KEY (project_id, number)
);
CREATE INDEX log_blocks_by_begin ON log_blocks (project_id, first_at, number);
CREATE INDEX log_blocks_by_end ON log_blocks (project_id, last_at, number, size);
CREATE INDEX log_blocks_by_instance ON log_blocks (instance, last_at);
