-- One dialect for both engines. {BYTES} is the engine's binary type, {SERIAL} a rising
-- primary key, {TXID} the number of the current transaction.
-- Ids are 24 hex characters made by the service, times are milliseconds since the epoch.

-- Who owns things: an account or a team. The counters make quotas cheap to check.
CREATE TABLE owners (
    id          TEXT PRIMARY KEY,
    projects    BIGINT NOT NULL DEFAULT 0,
    keys        BIGINT NOT NULL DEFAULT 0,
    workspaces  BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE accounts (
    id          TEXT PRIMARY KEY REFERENCES owners (id),
    email       TEXT NOT NULL UNIQUE,
    fullname    TEXT NOT NULL,
    password    TEXT,
    admin       BOOLEAN NOT NULL,
    disabled    BOOLEAN NOT NULL,
    created_at  BIGINT NOT NULL
);

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    account_id   TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    secret_hash  {BYTES} NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT
);
CREATE INDEX tokens_by_account ON tokens (account_id, id);
CREATE INDEX tokens_by_end ON tokens (expires_at);

-- Tries to log in that did not succeed (yet), by the hash of an account's address or of a network.
CREATE TABLE login_attempts (
    id     TEXT NOT NULL,
    scope  {BYTES} NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (scope, at, id)
);
CREATE INDEX login_attempts_by_time ON login_attempts (at);

CREATE TABLE teams (
    id          TEXT PRIMARY KEY REFERENCES owners (id),
    name        TEXT NOT NULL,
    created_at  BIGINT NOT NULL
);

CREATE TABLE team_members (
    team_id     TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    account_id  TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    role        TEXT NOT NULL,
    joined_at   BIGINT NOT NULL,
    PRIMARY KEY (team_id, account_id)
);
CREATE INDEX team_members_by_account ON team_members (account_id, team_id);

CREATE TABLE invitations (
    id           TEXT PRIMARY KEY,
    team_id      TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    email        TEXT NOT NULL,
    role         TEXT NOT NULL,
    invited_by   TEXT NOT NULL,
    secret_hash  {BYTES} NOT NULL UNIQUE,
    expires_at   BIGINT NOT NULL,
    UNIQUE (team_id, email)
);
CREATE INDEX invitations_by_time ON invitations (expires_at);

CREATE TABLE networks (
    id          TEXT PRIMARY KEY,
    owner_id    TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    UNIQUE (owner_id, name)
);

CREATE TABLE projects (
    id               TEXT PRIMARY KEY,
    owner_id         TEXT NOT NULL REFERENCES owners (id),
    name             TEXT NOT NULL UNIQUE,
    platform         TEXT NOT NULL,
    plan             TEXT NOT NULL,
    bundle_plan      TEXT NOT NULL,
    network_id       TEXT REFERENCES networks (id) ON DELETE SET NULL,
    scale            BIGINT NOT NULL,
    status           TEXT NOT NULL,
    read_only_root   BOOLEAN NOT NULL,
    current_release  TEXT,
    releases         BIGINT NOT NULL,
    ready_releases   BIGINT NOT NULL DEFAULT 0,
    last_event       TEXT,
    created_at       BIGINT NOT NULL,
    version          BIGINT NOT NULL
);
CREATE INDEX projects_by_owner ON projects (owner_id, id);

CREATE TABLE env_vars (
    id          TEXT PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    sealed      {BYTES} NOT NULL,
    position    BIGINT NOT NULL,
    UNIQUE (project_id, name)
);

-- Contents by hash: where each one lies on disk.
CREATE TABLE blobs (
    digest        {BYTES} PRIMARY KEY,
    size          BIGINT NOT NULL,
    place         TEXT NOT NULL,
    place_offset  BIGINT NOT NULL
);
CREATE INDEX blobs_by_place ON blobs (place);

-- What a release is made of. Several releases may share one (roll back, new environment variables).
CREATE TABLE artifacts (
    id          TEXT PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL,
    files       BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    manifest    {BYTES}
);
CREATE INDEX artifacts_by_project ON artifacts (project_id);

CREATE TABLE releases (
    id            TEXT PRIMARY KEY,
    project_id    TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    number        BIGINT NOT NULL,
    kind          TEXT NOT NULL,
    state         TEXT NOT NULL,
    platform      TEXT NOT NULL,
    port          BIGINT NOT NULL,
    message       TEXT,
    git_info      TEXT,
    client        TEXT,
    settings      {BYTES} NOT NULL,
    image         TEXT,
    artifact_id   TEXT REFERENCES artifacts (id) ON DELETE SET NULL,
    fail_reason   TEXT,
    fail_message  TEXT,
    created_at    BIGINT NOT NULL,
    finished_at   BIGINT,
    deadline      BIGINT NOT NULL,
    lease_owner   TEXT,
    lease_until   BIGINT NOT NULL,
    version       BIGINT NOT NULL,
    UNIQUE (project_id, number)
);
-- The worker asks for unfinished releases all the time; finished ones are not in these indexes.
CREATE INDEX releases_unfinished ON releases (project_id, number) WHERE finished_at IS NULL;
CREATE INDEX releases_queue ON releases (id) WHERE finished_at IS NULL;
CREATE INDEX releases_by_artifact ON releases (artifact_id);

CREATE TABLE events (
    id          TEXT PRIMARY KEY,
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    action      TEXT NOT NULL,
    status      TEXT NOT NULL,
    release_id  TEXT,
    tag         TEXT,
    at          BIGINT NOT NULL
);
CREATE INDEX events_by_project ON events (project_id, id);

CREATE TABLE workspaces (
    id          TEXT PRIMARY KEY,
    owner_id    TEXT NOT NULL REFERENCES owners (id),
    name        TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    version     BIGINT NOT NULL,
    UNIQUE (owner_id, name)
);

-- AI keys. Only hashes of their secrets are here: nobody can rebuild a key from this table.
CREATE TABLE keys (
    id             TEXT PRIMARY KEY,
    owner_id       TEXT NOT NULL REFERENCES owners (id),
    name           TEXT NOT NULL,
    enabled        BOOLEAN NOT NULL,
    secret_hash    {BYTES} NOT NULL,
    created_by     TEXT NOT NULL,
    created_at     BIGINT NOT NULL,
    last_used_at   BIGINT,
    token_exp      BIGINT,
    expires_at     BIGINT,
    models         TEXT,
    rpm            BIGINT,
    tpm            BIGINT,
    budget_nanos   BIGINT,
    budget_period  TEXT,
    version        BIGINT NOT NULL,
    UNIQUE (owner_id, name)
);
CREATE INDEX keys_by_owner ON keys (owner_id, id);

-- Secrets that a rotation replaced and that still work for a while.
CREATE TABLE key_old_secrets (
    key_id       TEXT NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    secret_hash  {BYTES} NOT NULL,
    valid_until  BIGINT NOT NULL,
    PRIMARY KEY (key_id, secret_hash)
);
CREATE INDEX key_old_secrets_by_time ON key_old_secrets (valid_until);

CREATE TABLE key_workspaces (
    key_id        TEXT NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    position      BIGINT NOT NULL,
    workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
    PRIMARY KEY (key_id, position)
);
CREATE INDEX key_workspaces_by_workspace ON key_workspaces (workspace_id);

CREATE TABLE signing_keys (
    kid         TEXT PRIMARY KEY,
    public      {BYTES} NOT NULL,
    sealed      {BYTES} NOT NULL,
    created_at  BIGINT NOT NULL
);

-- Requests with an idempotency key. Without a status the first one is still being carried out by
-- its holder, and the row ends with the holder's lease.
CREATE TABLE idempotency (
    scope       {BYTES} PRIMARY KEY,
    request     {BYTES} NOT NULL,
    holder      TEXT NOT NULL,
    status      BIGINT,
    headers     TEXT,
    body        {BYTES},
    expires_at  BIGINT NOT NULL
);
CREATE INDEX idempotency_by_time ON idempotency (expires_at);

-- What caches and followers must hear of, in the same transaction as the change itself.
CREATE TABLE changes (
    seq   {SERIAL},
    kind  TEXT NOT NULL,
    id    TEXT NOT NULL,
    at    BIGINT NOT NULL,
    txid  BIGINT NOT NULL DEFAULT {TXID}
);
CREATE INDEX changes_by_txid ON changes (txid);
