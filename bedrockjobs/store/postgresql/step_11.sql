-- From version 10 to 11: the token that a worker belongs to.

ALTER TABLE workers ADD COLUMN by text COLLATE "C";
