-- Lists of people: an owner's workspaces and a workspace's keys, newest first.
CREATE INDEX workspaces_by_owner ON workspaces (owner_id, id);
CREATE INDEX key_workspaces_newest ON key_workspaces (workspace_id, key_id);
DROP INDEX key_workspaces_by_workspace;
