-- What a server has under way that is on record nowhere else: closed in its place when it dies.
ALTER TABLE ledger_nodes ADD COLUMN under_way {BYTES};
