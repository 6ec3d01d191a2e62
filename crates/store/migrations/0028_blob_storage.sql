-- Which place of contents the rows of `blobs` refer to; one row.
CREATE TABLE blob_storage (
    slot       BIGINT PRIMARY KEY,
    -- Changes when the contents move to another place.
    epoch      BIGINT NOT NULL,
    -- The largest there was, so that none is used twice.
    newest     BIGINT NOT NULL,
    -- The one before, while a move is being completed: until the new place is proven to have everything.
    former     BIGINT
);
INSERT INTO blob_storage (slot, epoch, newest) VALUES (1, 0, 0);
