-- What a release's maker should know although it went well: a JSON list of texts; none: nothing.
ALTER TABLE releases ADD COLUMN warnings TEXT;
