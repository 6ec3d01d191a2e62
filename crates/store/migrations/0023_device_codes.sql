-- Logins of the command line that wait for a person at the panel (RFC 8628). Both codes are stored as hashes.
-- `account_id` and `session_id` are who approved it and with which session; `denied` ends it. A row is deleted when it
-- is redeemed, and some time after it has expired.
CREATE TABLE device_codes (
    id           TEXT PRIMARY KEY,
    device_hash  {BYTES} NOT NULL UNIQUE,
    user_hash    {BYTES} NOT NULL UNIQUE,
    host         TEXT NOT NULL,
    user_agent   TEXT NOT NULL,
    address      TEXT NOT NULL,
    network      TEXT NOT NULL,
    scope        TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    polled_at    BIGINT,
    denied       BOOLEAN NOT NULL DEFAULT FALSE,
    account_id   TEXT REFERENCES accounts (id) ON DELETE CASCADE,
    session_id   TEXT
);
CREATE INDEX device_codes_by_expiry ON device_codes (expires_at);
CREATE INDEX device_codes_by_account ON device_codes (account_id);
