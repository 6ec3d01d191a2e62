-- Whether releases replace each other without a gap, and whether {project}.{edge domain} serves it.
ALTER TABLE projects ADD COLUMN zero_downtime BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE projects ADD COLUMN default_subdomain BOOLEAN NOT NULL DEFAULT TRUE;
CREATE INDEX projects_by_network ON projects (network_id);
