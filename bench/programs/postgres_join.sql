-- An inner relation of INNER tuples with an index, and two outer relations of OUTER tuples without, of which
-- 20 and 80 in 100 find a match. Keys of the inner relation are even, in an order without pattern; the others are
-- odd, and so cost a search in the index, too. Tables that are filled where they are created need no log.
BEGIN;
CREATE TABLE relation (k int4 NOT NULL, pad text);
INSERT INTO relation SELECT (2 * ((n * 1103515245::bigint + 12345) % 2097143))::int4, repeat(md5(n::text), 4) FROM generate_series(1, INNER) n;
CREATE INDEX by_k ON relation (k);
CREATE TABLE outer20 (k int4 NOT NULL, v int4 NOT NULL);
INSERT INTO outer20 SELECT (2 * ((((n * 7919::bigint) % INNER + 1) * 1103515245::bigint + 12345) % 2097143) + (n % 5 <> 0)::int)::int4, n FROM generate_series(1, OUTER) n;
CREATE TABLE outer80 (k int4 NOT NULL, v int4 NOT NULL);
INSERT INTO outer80 SELECT (2 * ((((n * 7919::bigint) % INNER + 1) * 1103515245::bigint + 12345) % 2097143) + (n % 5 = 0)::int)::int4, n FROM generate_series(1, OUTER) n;
COMMIT;
VACUUM (FREEZE, ANALYZE) relation;
VACUUM (FREEZE, ANALYZE) outer20;
VACUUM (FREEZE, ANALYZE) outer80;
CHECKPOINT;
