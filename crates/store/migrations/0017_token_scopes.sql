-- What a token is good for, and from where it was last used. Tokens of before could do everything.
ALTER TABLE tokens ADD COLUMN scope TEXT NOT NULL DEFAULT 'full';
ALTER TABLE tokens ADD COLUMN last_address TEXT;
