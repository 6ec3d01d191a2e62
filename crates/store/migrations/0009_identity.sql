-- Failures to log in, by the hash of an account's address, of a network, or of both. Each row is a sum
-- that fades: `weight` is in thousandths of a failure, as of `last_at`.
DROP TABLE login_attempts;
CREATE TABLE login_failures (
    scope    {BYTES} PRIMARY KEY,
    weight   BIGINT NOT NULL,
    last_at  BIGINT NOT NULL
);
CREATE INDEX login_failures_by_time ON login_failures (last_at);

-- Networks from which somebody knew an account's password; `scope` is the hash of both.
CREATE TABLE login_networks (
    scope       {BYTES} PRIMARY KEY,
    account_id  TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    last_at     BIGINT NOT NULL
);
CREATE INDEX login_networks_by_account ON login_networks (account_id, last_at);
CREATE INDEX login_networks_by_time ON login_networks (last_at);

-- Tokens that logging in made: they end with the password. They were named so, and all had 30 days.
ALTER TABLE tokens ADD COLUMN session BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE tokens SET session = TRUE WHERE name = 'login' AND expires_at - created_at = 2592000000;
