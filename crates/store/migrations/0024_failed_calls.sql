-- The failed calls of a workspace (status 400 and above), newest first, without reading those that succeeded. Only rows
-- that failed are in the indexes, so the others cost no more to write.
CREATE INDEX calls_failed ON calls (workspace_id, status, id) WHERE status >= 400;

-- From here on a block has either calls that failed or calls that did not. Older ones may have both.
ALTER TABLE call_blocks ADD COLUMN has_failed BOOLEAN NOT NULL DEFAULT TRUE;
CREATE INDEX call_blocks_failed ON call_blocks (workspace_id, last_id) WHERE has_failed;
