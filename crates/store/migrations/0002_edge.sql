-- Releases go live: what the edge serves, what it is made from, and what may be removed.

-- Until when a release was the one that served; none while it is, and when it never was.
ALTER TABLE releases ADD COLUMN live_until BIGINT;
-- The archive that it was made from, when it was.
ALTER TABLE releases ADD COLUMN source_id TEXT;
-- How its files are served, as JSON; none: as is usual.
ALTER TABLE releases ADD COLUMN site TEXT;
CREATE INDEX releases_by_source ON releases (source_id) WHERE source_id IS NOT NULL;
CREATE INDEX releases_by_live ON releases (project_id, live_until) WHERE live_until IS NOT NULL;

-- Whether the quick variants of all its contents were made, and whether the slow ones were.
ALTER TABLE artifacts ADD COLUMN compressed BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE artifacts ADD COLUMN brotli BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX artifacts_without_brotli ON artifacts (id) WHERE compressed AND NOT brotli;
-- A release that names contents by digest is compared with the newest artifacts of its project.
DROP INDEX artifacts_by_project;
CREATE INDEX artifacts_by_project ON artifacts (project_id, id);

-- Set while a clean-up thinks that nothing needs this content; a release that does clears it.
ALTER TABLE blobs ADD COLUMN condemned_at BIGINT;
CREATE INDEX blobs_condemned ON blobs (condemned_at) WHERE condemned_at IS NOT NULL;

-- Compressed variants of contents, made once. Without a variant the content is not worth it.
CREATE TABLE variants (
    digest   {BYTES} NOT NULL,
    coding   TEXT NOT NULL,
    variant  {BYTES},
    PRIMARY KEY (digest, coding)
);
CREATE INDEX variants_by_variant ON variants (variant) WHERE variant IS NOT NULL;

-- Archives that were uploaded; their bytes are contents like any other.
CREATE TABLE sources (
    id          TEXT PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    format      TEXT NOT NULL,
    digest      {BYTES} NOT NULL,
    size        BIGINT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX sources_by_project ON sources (project_id, created_at);

-- Contents that a client sent ahead of a release that will name them.
CREATE TABLE blob_uploads (
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    digest      {BYTES} NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (project_id, digest)
);
CREATE INDEX blob_uploads_by_time ON blob_uploads (at);

-- What the build of a release said, line by line; times are unique and rise within a release.
CREATE TABLE build_logs (
    release_id  TEXT NOT NULL REFERENCES releases (id) ON DELETE CASCADE,
    at          BIGINT NOT NULL,
    line        TEXT NOT NULL,
    PRIMARY KEY (release_id, at)
);
