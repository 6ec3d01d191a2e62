-- Browsers that are signed in to the account panel. A session is found by its id; `secret_hash` is the hash of
-- the cookie. `authenticated_at` is when the person last gave the password or the second factor.
CREATE TABLE sessions (
    id                TEXT PRIMARY KEY,
    account_id        TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    secret_hash       {BYTES} NOT NULL,
    created_at        BIGINT NOT NULL,
    last_seen_at      BIGINT NOT NULL,
    authenticated_at  BIGINT NOT NULL,
    address           TEXT NOT NULL,
    user_agent        TEXT NOT NULL
);
CREATE INDEX sessions_by_account ON sessions (account_id, id);
CREATE INDEX sessions_by_last_use ON sessions (last_seen_at);

-- Links with which somebody sets the password of an account, once. An account has one at most. That of a first
-- start has the kind `welcome` and stays until it is used: it says that one was printed.
CREATE TABLE reset_links (
    account_id   TEXT PRIMARY KEY REFERENCES accounts (id) ON DELETE CASCADE,
    secret_hash  {BYTES} NOT NULL UNIQUE,
    kind         TEXT NOT NULL,
    expires_at   BIGINT NOT NULL
);
CREATE INDEX reset_links_by_expiry ON reset_links (expires_at);

-- The second factor of an account (TOTP); in force from `enabled_at` on, which a first right code sets.
-- `last_step` is the time step of the last code that was taken: no code is taken twice.
CREATE TABLE second_factors (
    account_id     TEXT PRIMARY KEY REFERENCES accounts (id) ON DELETE CASCADE,
    sealed_secret  {BYTES} NOT NULL,
    created_at     BIGINT NOT NULL,
    enabled_at     BIGINT,
    last_step      BIGINT NOT NULL
);
CREATE TABLE recovery_codes (
    account_id  TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    code_hash   {BYTES} NOT NULL,
    PRIMARY KEY (account_id, code_hash)
);

-- Whether `token_id` is the id of a session instead.
ALTER TABLE audit ADD COLUMN by_session BOOLEAN NOT NULL DEFAULT FALSE;
