-- A search among an owner's keys by how their names begin, byte by byte on both backends.
CREATE INDEX keys_by_name ON keys (owner_id, LOWER(name{BYTEWISE}), id);
