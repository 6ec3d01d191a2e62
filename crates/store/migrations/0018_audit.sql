-- The audit log also has the platform's changes. `kind` is the part of the action before the dot, and `detail` says
-- more about it.
ALTER TABLE audit ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN detail TEXT NOT NULL DEFAULT '';
UPDATE audit SET kind = 'key' WHERE action LIKE 'key.%';
UPDATE audit SET kind = 'workspace' WHERE action LIKE 'workspace.%';
UPDATE audit SET kind = 'provider' WHERE action LIKE 'provider.%';
CREATE INDEX audit_by_kind ON audit (owner_id, kind, id);
CREATE INDEX audit_by_time ON audit (at);
