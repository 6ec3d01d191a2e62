-- What AI keys were used for, what it cost, what they may cost, and who changed what.

-- What all keys of a workspace together may use, and which provider of a model it prefers.
ALTER TABLE workspaces ADD COLUMN rpm BIGINT;
ALTER TABLE workspaces ADD COLUMN tpm BIGINT;
ALTER TABLE workspaces ADD COLUMN budget_nanos BIGINT;
ALTER TABLE workspaces ADD COLUMN budget_period TEXT;
ALTER TABLE workspaces ADD COLUMN preference TEXT NOT NULL DEFAULT 'order';

-- Whether answers to a key's deterministic requests may come from the cache.
ALTER TABLE keys ADD COLUMN cache BOOLEAN NOT NULL DEFAULT FALSE;

-- One row per call. While it is open, the cost is what was set aside, and `node` and the slices say
-- who has to close it. Keys and workspaces are not referred to: what was used stays when they go.
CREATE TABLE calls (
    workspace_id       TEXT NOT NULL,
    id                 TEXT NOT NULL,
    key_id             TEXT NOT NULL,
    created_at         BIGINT NOT NULL,
    operation          TEXT NOT NULL,
    model              TEXT NOT NULL,
    provider           TEXT NOT NULL,
    status             BIGINT NOT NULL,
    streamed           BOOLEAN NOT NULL,
    partial            BOOLEAN NOT NULL,
    estimated          BOOLEAN NOT NULL,
    cached             BOOLEAN NOT NULL,
    prompt_tokens      BIGINT NOT NULL,
    completion_tokens  BIGINT NOT NULL,
    cost_nanos         BIGINT NOT NULL,
    latency_us         BIGINT NOT NULL,
    ttfb_us            BIGINT NOT NULL,
    attempts           BIGINT NOT NULL,
    open               BOOLEAN NOT NULL,
    node               TEXT,
    key_slice          TEXT,
    workspace_slice    TEXT,
    PRIMARY KEY (workspace_id, id)
) {CLUSTERED};
-- Empty most of the time, so it costs nothing: what a node that died has left.
CREATE INDEX calls_open ON calls (node) WHERE open;

-- The sums of closed calls, kept when the calls are gone; `model` is empty for calls that reached
-- no provider, because their callers may write anything there.
CREATE TABLE usage_hours (
    workspace_id       TEXT NOT NULL,
    at                 BIGINT NOT NULL,
    key_id             TEXT NOT NULL,
    model              TEXT NOT NULL,
    requests           BIGINT NOT NULL,
    prompt_tokens      BIGINT NOT NULL,
    completion_tokens  BIGINT NOT NULL,
    cost_nanos         BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, at, key_id, model)
) {CLUSTERED};
CREATE INDEX usage_hours_by_time ON usage_hours (at);

-- Hours that are old become days.
CREATE TABLE usage_days (
    workspace_id       TEXT NOT NULL,
    at                 BIGINT NOT NULL,
    key_id             TEXT NOT NULL,
    model              TEXT NOT NULL,
    requests           BIGINT NOT NULL,
    prompt_tokens      BIGINT NOT NULL,
    completion_tokens  BIGINT NOT NULL,
    cost_nanos         BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, at, key_id, model)
) {CLUSTERED};

-- What a key or workspace has spent in a period, without what is in slices.
CREATE TABLE budgets (
    subject       TEXT NOT NULL,
    period        TEXT NOT NULL,
    period_start  BIGINT NOT NULL,
    spent         BIGINT NOT NULL,
    PRIMARY KEY (subject, period, period_start)
) {CLUSTERED};
CREATE INDEX budgets_by_time ON budgets (period_start);

-- Servers that may spend. One whose deadline has passed is settled by any other; 0: it is being settled.
CREATE TABLE ledger_nodes (
    id        TEXT PRIMARY KEY,
    deadline  BIGINT NOT NULL
);

-- The part of a budget that one server may spend, and what closed calls have taken of it.
CREATE TABLE budget_slices (
    id            TEXT PRIMARY KEY,
    node          TEXT NOT NULL REFERENCES ledger_nodes (id),
    subject       TEXT NOT NULL,
    period        TEXT NOT NULL,
    period_start  BIGINT NOT NULL,
    amount        BIGINT NOT NULL,
    settled       BIGINT NOT NULL
);
CREATE INDEX budget_slices_by_subject ON budget_slices (subject, period, period_start);
CREATE INDEX budget_slices_by_node ON budget_slices (node);

-- Who changed what. Rows are only ever added.
CREATE TABLE audit (
    owner_id    TEXT NOT NULL,
    id          TEXT NOT NULL,
    at          BIGINT NOT NULL,
    account_id  TEXT NOT NULL,
    token_id    TEXT NOT NULL,
    email       TEXT NOT NULL,
    action      TEXT NOT NULL,
    subject     TEXT NOT NULL,
    name        TEXT NOT NULL,
    fields      TEXT NOT NULL,
    address     TEXT,
    request_id  TEXT,
    PRIMARY KEY (owner_id, id)
) {CLUSTERED};
CREATE INDEX audit_by_subject ON audit (owner_id, subject, id);

-- Who answers inference requests, besides those in the configuration. The key is sealed.
CREATE TABLE providers (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    settings    TEXT NOT NULL,
    sealed_key  {BYTES},
    created_at  BIGINT NOT NULL,
    version     BIGINT NOT NULL
);
