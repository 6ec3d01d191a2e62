-- Host names of the users' own, and certificates for what the edge serves.

-- A name may wait for several owners, but serve only one: the one who proved that it is theirs.
CREATE TABLE domains (
    id           TEXT PRIMARY KEY,
    owner_id     TEXT NOT NULL REFERENCES owners (id),
    project_id   TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    token        TEXT NOT NULL,
    active       BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    verified_at  BIGINT,
    checked_at   BIGINT,
    checks       BIGINT NOT NULL,
    next_check   BIGINT,
    problem      TEXT,
    version      BIGINT NOT NULL,
    UNIQUE (owner_id, name)
);
CREATE UNIQUE INDEX domains_active ON domains (name) WHERE active;
CREATE INDEX domains_by_owner ON domains (owner_id, id);
CREATE INDEX domains_by_project ON domains (project_id, id);
CREATE INDEX domains_due ON domains (next_check) WHERE next_check IS NOT NULL;

-- Certificates from ACME, by host. Without a chain the first one is on its way, or failed.
CREATE TABLE certificates (
    host        TEXT PRIMARY KEY,
    chain       TEXT,
    sealed      {BYTES},
    not_after   BIGINT,
    -- When to order the next one: before the end of this one, or after a failure.
    order_at    BIGINT NOT NULL,
    ordered_at  BIGINT NOT NULL,
    failures    BIGINT NOT NULL,
    problem     TEXT,
    lease_until BIGINT NOT NULL
);
CREATE INDEX certificates_due ON certificates (order_at);
CREATE INDEX certificates_by_order ON certificates (ordered_at);

CREATE TABLE acme_accounts (
    directory   TEXT PRIMARY KEY,
    sealed      {BYTES} NOT NULL,
    created_at  BIGINT NOT NULL
);

-- What to answer to an ACME server that checks a host, on whichever node it arrives.
CREATE TABLE acme_challenges (
    token       TEXT PRIMARY KEY,
    host        TEXT NOT NULL,
    answer      TEXT NOT NULL,
    expires_at  BIGINT NOT NULL
);
CREATE INDEX acme_challenges_by_host ON acme_challenges (host);
CREATE INDEX acme_challenges_by_time ON acme_challenges (expires_at);
