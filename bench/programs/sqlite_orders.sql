-- A database of customers and their orders for the sqlite3 shell, made of a seeded sequence: the same
-- in every run. The temporary table `size` has the number of orders: 4,000,000 are 1 GB.
PRAGMA journal_mode = off;
PRAGMA synchronous = off;
PRAGMA cache_size = -65536;
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, region TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, day INTEGER, total REAL, note TEXT);
-- Words to cut notes from.
CREATE TEMP TABLE text AS
WITH RECURSIVE r(n, s) AS (SELECT 1, 20010901 UNION ALL
    SELECT n + 1, (s * 1103515245 + 12345) & 2147483647 FROM r WHERE n < 400)
SELECT group_concat(printf('%x', s >> 7), ' ') AS words FROM r;
BEGIN;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 20000)
INSERT INTO customer SELECT n, printf('customer %05d', n), 'region ' || n % 17 FROM r;
WITH RECURSIVE r(n, s) AS (SELECT 1, 42 UNION ALL
    SELECT n + 1, (s * 1103515245 + 12345) & 2147483647 FROM r, size WHERE n < size.orders)
INSERT INTO orders SELECT n, 1 + (s >> 8) % 20000, (s >> 5) % 3650, ((s >> 9) % 100000) / 100.0,
    substr(words, 1 + (s >> 12) % 2000, 120 + (s >> 10) % 181) FROM r, text;
-- After the rows, so that it takes seconds.
CREATE INDEX by_customer ON orders(customer);
CREATE INDEX by_day ON orders(day);
COMMIT;
