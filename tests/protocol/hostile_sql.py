"""Hostile SQL by kind: to run long, to fill memory, to write, to break a parser.

Sizes are just under what SQLite lets through (values of 32 MiB, texts of 100,000 characters), where they cost
most. A text may be answered or refused; it must end.
"""

from __future__ import annotations

from bedrockjobs.base.config import QUERY_CHARS_MAX

ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
MILLION = f"{ENDLESS[:-1]} LIMIT 1000000)"
MANY_JOBS = ", ".join(f"jobs AS j{n}" for n in range(20))
LONG = 15_000_000
"""Bytes of a blob whose hex is just a value that SQLite makes."""


def _filled(head: str, part: str, tail: str) -> str:
    """Return a text of the greatest length, filled with ``part``."""
    return head + part * ((QUERY_CHARS_MAX - len(head) - len(tail)) // len(part)) + tail


RECURSION = [
    f"{ENDLESS} SELECT count(*) FROM c;",
    f"{ENDLESS} SELECT max(x) FROM c;",
    f"{ENDLESS} SELECT x FROM c;",
    f"{ENDLESS} SELECT x FROM c WHERE x < 0;",
    f"{ENDLESS} SELECT x FROM c ORDER BY x DESC;",
    f"{ENDLESS} SELECT DISTINCT x % 3 FROM c;",
    f"{ENDLESS} SELECT x, count(*) FROM c GROUP BY x;",
    f"{ENDLESS} SELECT sum(x) OVER (ORDER BY x) FROM c;",
    f"{ENDLESS} SELECT row_number() OVER (PARTITION BY x % 7 ORDER BY x DESC) FROM c;",
    f"{ENDLESS} SELECT x FROM c EXCEPT SELECT x FROM c;",
    f"{ENDLESS} SELECT x FROM c INTERSECT SELECT -1;",
    f"{ENDLESS} SELECT EXISTS (SELECT 1 FROM c WHERE x = 0);",
    f"{ENDLESS} SELECT 0 IN (SELECT x FROM c);",
    f"{ENDLESS} SELECT (SELECT max(x) FROM c), (SELECT min(x) FROM c);",
    f"{ENDLESS} SELECT a.x FROM c AS a JOIN c AS b ON a.x = b.x + 1;",
    f"{ENDLESS} SELECT count(*) FROM c AS a, c AS b, c AS d;",
    f"{MILLION} SELECT count(*) FROM c AS a, c AS b;",
    f"{MILLION} SELECT count(*) FROM c AS a JOIN c AS b ON a.x < b.x;",
    f"{MILLION} SELECT a.x FROM c AS a ORDER BY (SELECT max(b.x) FROM c AS b WHERE b.x <> a.x);",
    f"{MILLION} SELECT max(x) OVER (ROWS BETWEEN 500000 PRECEDING AND CURRENT ROW) FROM c;",
    f"{MILLION} SELECT median FROM (SELECT nth_value(x, 3) OVER (ORDER BY x DESC) AS median FROM c);",
    f"{MILLION} SELECT DISTINCT hex(randomblob(100)) FROM c;",
    f"{MILLION} SELECT hex(randomblob(200)) AS h FROM c ORDER BY h;",
    f"{MILLION} SELECT x FROM c UNION SELECT -x FROM c UNION SELECT x * 2 FROM c;",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c ORDER BY 1 DESC) SELECT min(x) FROM c;",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION SELECT x * 3 % 1000000007 FROM c) SELECT count(*) FROM c;",
    "WITH RECURSIVE c(s) AS (SELECT 'x' UNION ALL SELECT s || 'x' FROM c) SELECT max(length(s)) FROM c;",
    "WITH RECURSIVE c(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM c) SELECT max(length(s)) FROM c;",
    "WITH RECURSIVE c(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM c LIMIT 24) SELECT s FROM c;",
    "WITH RECURSIVE c(s) AS (SELECT 'ab' UNION ALL SELECT substr(s || s, 1, 100) FROM c) SELECT s FROM c;",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c, jobs) SELECT count(*) FROM c;",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT 1 FROM c UNION ALL SELECT 2 FROM c) SELECT x FROM c;",
    "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a), b(y) AS (SELECT 1 UNION ALL"
    " SELECT y + 1 FROM b) SELECT count(*) FROM a, b WHERE x = y;",
    "WITH RECURSIVE f(a, b) AS (SELECT 0, 1 UNION ALL SELECT b, a + b FROM f) SELECT b FROM f;",
    "WITH RECURSIVE c(z) AS (SELECT zeroblob(1000000) UNION ALL SELECT z FROM c) SELECT z FROM c ORDER BY z;",
]

BLOBS = [
    "SELECT zeroblob(1000000000);",
    "SELECT zeroblob(33554432);",
    "SELECT zeroblob(33554433);",
    "SELECT hex(zeroblob(500000000));",
    f"SELECT hex(zeroblob({LONG}));",
    "SELECT length(zeroblob(33000000) || zeroblob(33000000));",
    "SELECT quote(zeroblob(16000000));",
    "SELECT randomblob(33000000);",
    "SELECT hex(randomblob(16000000));",
    "SELECT length(hex(randomblob(16000000)) || 'x');",
    "SELECT instr(hex(zeroblob(500000000)), 'x');",
    f"SELECT instr(hex(zeroblob({LONG})), 'x');",
    f"SELECT instr(hex(zeroblob({LONG})), hex(zeroblob(4000000)) || '1');",
    f"SELECT instr(hex(zeroblob({LONG})), hex(zeroblob({LONG // 2})) || 'x');",
    f"SELECT instr(zeroblob({LONG * 2}), zeroblob({LONG}) || x'01');",
    f"SELECT instr(hex(randomblob({LONG})), hex(randomblob(1000)));",
    f"SELECT sum(instr(hex(zeroblob({LONG})), hex(zeroblob(1000)) || value)) FROM json_each('[1,2,3,4,5]');",
    f"SELECT trim(hex(zeroblob({LONG})), '0');",
    f"SELECT ltrim(hex(zeroblob({LONG})), hex(zeroblob(50000)));",
    f"SELECT rtrim(hex(zeroblob({LONG})), hex(zeroblob({LONG})));",
    f"SELECT upper(lower(upper(hex(zeroblob({LONG})))));",
    f"SELECT unicode(hex(zeroblob({LONG})));",
    f"SELECT substr(hex(zeroblob({LONG})), -1, -30000000);",
    f"SELECT soundex(hex(zeroblob({LONG})));",
    f"SELECT hex(hex(hex(zeroblob({LONG // 4}))));",
    f"SELECT CAST(hex(zeroblob({LONG})) AS INTEGER) + CAST(hex(zeroblob({LONG})) AS REAL);",
    f"SELECT zeroblob({LONG * 2}) = zeroblob({LONG * 2}), zeroblob({LONG * 2}) < zeroblob({LONG * 2});",
    f"{ENDLESS} SELECT zeroblob(30000000) FROM c;",
    f"{ENDLESS} SELECT max(randomblob(1000000)) FROM c;",
    f"{ENDLESS} SELECT sum(length(hex(randomblob(1000000)))) FROM c;",
    f"{MILLION} SELECT min(hex(zeroblob({LONG}))) FROM c;",
    f"{MILLION} SELECT zeroblob(1000000) AS z, x FROM c ORDER BY z, x DESC;",
]

FORMATS = [
    "SELECT printf('%*c', 33000000, 'x');",
    "SELECT printf('%*c', 2147483647, 'x');",
    "SELECT printf('%*c', -2147483648, 'x');",
    "SELECT printf('%.*c', 30000000, 'x');",
    "SELECT printf('%30000000s', 'x');",
    "SELECT printf('%-30000000s', 'x');",
    "SELECT printf('%030000000d', 1);",
    "SELECT printf('%.30000000f', 1.1);",
    "SELECT printf('%.100000000f', 1e308);",
    "SELECT printf('%!.30000000g', 0.1);",
    "SELECT printf('%,30000000d', 9223372036854775807);",
    "SELECT printf('%.30000000x', 1);",
    "SELECT printf('%q', printf('%.*c', 15000000, ''''));",
    "SELECT printf('%Q', printf('%.*c', 15000000, ''''));",
    "SELECT printf('%w', printf('%.*c', 15000000, '\"'));",
    "SELECT printf('%s%s%s%s', a, a, a, a) FROM (SELECT printf('%.*c', 10000000, 'x') AS a);",
    "SELECT format('%.*c', 30000000, 'x') || format('%.*c', 30000000, 'x');",
    f"{ENDLESS} SELECT sum(length(printf('%.*c', 30000000, 'x'))) FROM c;",
    f"{ENDLESS} SELECT max(printf('%.20000000f', x)) FROM c;",
    "SELECT " + ", ".join(["printf('%30000000s', 'x')"] * 50) + ";",
    "SELECT strftime(printf('%.*c', 30000000, '%'), 'now');",
    "SELECT strftime(replace(hex(zeroblob(1000000)), '0', '%f%J%s'), 'now');",
    "SELECT datetime('now'" + ", '+1 day'" * 90 + ");",
    f"{ENDLESS} SELECT max(datetime('now', x || ' days')) FROM c;",
    "SELECT char(" + ", ".join(["1114111"] * 100) + ");",
    "SELECT char(0), char(-1), char(55296), char(9999999999);",
]

PATTERNS = [
    f"SELECT hex(zeroblob({LONG})) LIKE '{'%0' * 2000}%1';",
    f"SELECT hex(zeroblob({LONG})) LIKE '%1%';",
    f"SELECT hex(zeroblob({LONG})) LIKE '{'_' * 40000}';",
    f"SELECT hex(zeroblob({LONG})) GLOB '{'*0' * 2000}*1';",
    f"SELECT hex(zeroblob({LONG})) GLOB '*1*';",
    f"SELECT hex(zeroblob({LONG})) GLOB '{'?' * 40000}*';",
    f"SELECT hex(zeroblob({LONG})) GLOB '*{'[0-9a-zA-Z]' * 4000}x';",
    f"SELECT hex(zeroblob({LONG})) GLOB '*[^{'b' * 40000}]*x';",
    "SELECT hex(zeroblob(100000)) LIKE replace(hex(zeroblob(10000)), '0', '%0') || 'x';",
    "SELECT hex(zeroblob(100000)) GLOB replace(hex(zeroblob(10000)), '0', '*0') || 'x';",
    "SELECT hex(zeroblob(1000)) GLOB replace(hex(zeroblob(12000)), '0', '*?') || 'x';",
    "SELECT hex(zeroblob(5000)) GLOB replace(hex(zeroblob(8000)), '00', '*[0]') || 'x';",
    f"{MILLION} SELECT count(*) FROM c WHERE hex(zeroblob(1000)) LIKE '%1%2%3%' || x;",
    f"{MILLION} SELECT count(*) FROM c WHERE hex(zeroblob(1000)) GLOB '*1*2*3*' || x;",
    f"SELECT like('{'%a' * 1000}', hex(zeroblob({LONG})), '\\');",
    "SELECT like(hex(zeroblob(40000)), hex(zeroblob(40000)));",
    "SELECT like(zeroblob(30000), zeroblob(30000));",
    "SELECT glob(hex(zeroblob(16000000)), 'x');",
    "SELECT name FROM jobs WHERE name GLOB '" + "*a" * 20000 + "';",
    "SELECT name FROM jobs WHERE name LIKE '" + "%_" * 20000 + "' ESCAPE '!';",
    "SELECT 'x' REGEXP '(a+)+$';",
    "SELECT 'x' MATCH 'y';",
]

REPLACEMENTS = [
    f"SELECT replace(hex(zeroblob({LONG})), '0', 'xx');",
    "SELECT replace(hex(zeroblob(1000000)), '0', hex(zeroblob(1000000)));",
    f"SELECT replace(hex(zeroblob({LONG})), hex(zeroblob(4000000)) || '1', '');",
    f"SELECT replace(hex(zeroblob({LONG})), hex(zeroblob({LONG // 2})) || 'x', 'y');",
    f"SELECT length(replace(hex(zeroblob({LONG})), '0', ''));",
    f"SELECT replace(replace(replace(hex(zeroblob({LONG})), '0', '1'), '1', '2'), '2', '3');",
    "SELECT replace(" * 500 + "'ab'" + ", 'a', 'aa')" * 500 + ";",
    "SELECT replace(" * 25 + "'a'" + ", 'a', 'aa')" * 25 + ";",
    "SELECT length(" + "replace(" * 24 + "'a'" + ", 'a', 'aa')" * 24 + ");",
    f"{ENDLESS} SELECT max(length(replace(hex(zeroblob(1000000)), '0', x))) FROM c;",
]

AGGREGATES = [
    f"{ENDLESS} SELECT group_concat(x) FROM c;",
    f"{MILLION} SELECT group_concat(x) FROM c;",
    f"{MILLION} SELECT group_concat(hex(zeroblob(1000))) FROM c;",
    f"{MILLION} SELECT group_concat(x, hex(zeroblob(100000))) FROM c;",
    f"{MILLION} SELECT group_concat(x) OVER (ORDER BY x) FROM c;",
    f"{MILLION} SELECT sum(length(g)) FROM (SELECT group_concat(x) OVER (ORDER BY x) AS g FROM c);",
    f"{MILLION} SELECT length(group_concat(x)) FROM c GROUP BY x % 2;",
    f"{MILLION} SELECT count(DISTINCT x || hex(randomblob(50))) FROM c;",
    f"{MILLION} SELECT total(x), avg(x), sum(9223372036854775807) FROM c;",
    f"{ENDLESS} SELECT json_group_array(x) FROM c;",
    f"{ENDLESS} SELECT json_group_object(x, x) FROM c;",
    f"{MILLION} SELECT json_group_array(hex(zeroblob(100))) FROM c;",
    f"{MILLION} SELECT json_group_array(x) OVER (ORDER BY x) FROM c;",
    f"{MILLION} SELECT lag(x, 500000) OVER (), lead(x, 500000) OVER (), ntile(999999) OVER () FROM c;",
    f"{MILLION} SELECT percent_rank() OVER (ORDER BY x % 5), cume_dist() OVER (ORDER BY -x) FROM c;",
]

JSON = [
    "SELECT json(replace(hex(zeroblob(15000000)), '0', '['));",
    "SELECT json(replace(hex(zeroblob(900)), '0', '[') || replace(hex(zeroblob(900)), '0', ']'));",
    "SELECT json_valid(replace(hex(zeroblob(2500000)), '00', '{\"a\":'));",
    "SELECT json_array(hex(zeroblob(15000000)), hex(zeroblob(15000000)));",
    "SELECT json_quote(printf('%.*c', 15000000, char(1)));",
    "SELECT json_extract('[' || replace(hex(zeroblob(5000000)), '0', '1,') || '1]', '$[#-1]');",
    "SELECT json_extract('[1]', '$' || replace(hex(zeroblob(5000000)), '00', '[0]'));",
    "SELECT json_set('[]', '$' || replace(hex(zeroblob(5000)), '00', '[0]'), 1);",
    "SELECT json_set('{}', '$' || replace(hex(zeroblob(500000)), '00', '.a'), 1);",
    "SELECT json_patch(a, a) FROM (SELECT '[' || replace(hex(zeroblob(3000000)), '0', '1,') || '1]' AS a);",
    "SELECT json_patch(a, a) FROM (SELECT json_group_object(value, value) AS a FROM"
    f" ({MILLION} SELECT x AS value FROM c LIMIT 30000));",
    f"SELECT json_extract(a, '$.k99999') FROM (SELECT json_group_object('k' || x, x) AS a FROM ({MILLION}"
    " SELECT x FROM c LIMIT 100000));",
    "SELECT count(*) FROM json_each('[' || replace(hex(zeroblob(5000000)), '0', '1,') || '1]');",
    "SELECT count(*) FROM json_tree('[' || replace(hex(zeroblob(5000000)), '0', '[],') || '1]');",
    "SELECT count(*) FROM json_each(a) AS x, json_each(a) AS y, json_each(a) AS z FROM (SELECT 1);",
    "SELECT count(*) FROM (SELECT '[' || replace(hex(zeroblob(5000)), '0', '1,') || '1]' AS a),"
    " json_each(a) AS x, json_each(a) AS y;",
    "SELECT fullkey FROM json_tree(replace(hex(zeroblob(500)), '0', '[')"
    " || replace(hex(zeroblob(500)), '0', ']'));",
    "SELECT json_type(data), json_extract(data, '$.' || hex(zeroblob(10000000))) FROM jobs;",
    "SELECT data -> '$' ->> '$.a' -> 'b' FROM jobs;",
    "SELECT json_remove(data, '$', '$', '$') FROM jobs;",
    f"{ENDLESS} SELECT max(json_array(x, x, x)) FROM c;",
    "SELECT '{\"a\":' || '1e999999' || '}' AS data;",
    "SELECT replace(hex(zeroblob(400)), '00', '{\"a\":') || '1'"
    " || replace(hex(zeroblob(400)), '00', '}') AS data;",
]

DEEP = [
    f"SELECT {'(' * 900}1{')' * 900};",
    f"SELECT {'(' * 40000}1{')' * 40000};",
    f"SELECT {'-' * 1}{'- ' * 40000}1;",
    f"SELECT {'NOT ' * 20000}1;",
    f"SELECT {'~' * 90000}1;",
    f"SELECT {'abs(' * 900}1{')' * 900};",
    f"SELECT {'abs(' * 15000}1{')' * 15000};",
    f"SELECT {'(SELECT ' * 90}1{')' * 90};",
    f"SELECT {'(SELECT ' * 9000}1{')' * 9000};",
    f"SELECT * FROM {'(SELECT * FROM ' * 90}jobs{')' * 90};",
    f"SELECT * FROM {'(SELECT * FROM ' * 6000}jobs{')' * 6000};",
    f"SELECT {'CASE WHEN 1 THEN ' * 400}1{' END' * 400};",
    f"SELECT {'CASE WHEN 1 THEN ' * 4000}1{' END' * 4000};",
    f"SELECT {'EXISTS (SELECT 1 WHERE ' * 60}1{')' * 60};",
    f"SELECT {'coalesce(NULL, ' * 5000}1{')' * 5000};",
    _filled("SELECT ", "(", "1;"),
    _filled("SELECT ", "[", ";"),
]

TERMS = [
    _filled("SELECT 1", "+1", ";"),
    _filled("SELECT 1", "||1", ";"),
    _filled("SELECT 1", ",1", ";"),
    f"SELECT {','.join(map(str, range(1999)))};",
    f"SELECT {','.join(map(str, range(2001)))};",
    _filled("SELECT 1", " OR 1", ";"),
    _filled("SELECT 1 WHERE 0", " OR name=1", ";"),
    _filled("SELECT 1 FROM jobs WHERE jobID=0", " OR jobID=1", ";"),
    _filled("SELECT 1 FROM jobs WHERE jobID IN (0", ",1", ");"),
    _filled("SELECT 1", " UNION SELECT 1", ";"),
    "SELECT 1" + " UNION ALL SELECT 1" * 499 + ";",
    "SELECT 1" + " UNION ALL SELECT 1" * 501 + ";",
    _filled("VALUES (1)", ",(1)", ";"),
    _filled("SELECT 1 FROM jobs GROUP BY 1", ",1", ";"),
    _filled("SELECT 1 FROM jobs ORDER BY 1", ",1", ";"),
    _filled("SELECT max(1", ",1", ");"),
    _filled("SELECT 1 AS a", ",1 AS a", ";"),
    _filled("SELECT * FROM jobs", ",jobs", ";"),
    _filled("SELECT * FROM jobs", " NATURAL JOIN jobs", ";"),
    f"SELECT * FROM jobs AS j0 {' '.join(f'LEFT JOIN jobs AS j{n} USING (jobID)' for n in range(1, 63))};",
    "SELECT 1 FROM jobs AS j0 "
    + " ".join(f"JOIN jobs AS j{n} ON j{n}.jobID > j{n - 1}.jobID" for n in range(1, 40))
    + ";",
    "WITH "
    + ", ".join(f"t{n} AS (SELECT * FROM t{n - 1}, t{n - 1} AS o)" for n in range(1, 60))
    + ", t0 AS (SELECT 1) SELECT count(*) FROM t59;",
    "WITH t0 AS (SELECT 1 AS x), "
    + ", ".join(f"t{n} AS (SELECT a.x FROM t{n - 1} AS a, t{n - 1} AS b)" for n in range(1, 12))
    + " SELECT count(*) FROM t11;",
]

CROSS_JOINS = [
    f"SELECT count(*) FROM {MANY_JOBS};",
    f"SELECT * FROM {MANY_JOBS};",
    f"SELECT j0.name FROM {MANY_JOBS} ORDER BY j19.jobID DESC, j3.name;",
    f"SELECT max(j0.data || j1.data || j2.data) FROM {MANY_JOBS};",
    f"SELECT DISTINCT j0.jobID + j1.jobID + j2.jobID + j3.jobID FROM {MANY_JOBS};",
    f"SELECT count(*) FROM {MANY_JOBS} WHERE j0.name <> j0.name;",
    f"SELECT count(*) FROM {MANY_JOBS} GROUP BY j0.jobID, j1.jobID, j2.jobID, j3.jobID, j4.jobID;",
    "SELECT count(*) FROM jobs AS a, jobs AS b, jobs AS c, jobs AS d, jobs AS e, jobs AS f;",
    "SELECT count(*) FROM jobs AS a LEFT JOIN jobs AS b ON a.data LIKE b.data LEFT JOIN jobs AS c"
    " ON b.data LIKE c.data LEFT JOIN jobs AS d ON c.data LIKE d.data;",
    "SELECT group_concat(a.data || b.data || c.data) FROM jobs AS a, jobs AS b, jobs AS c;",
    "SELECT count(*) FROM sqlite_schema AS a, sqlite_schema AS b, sqlite_schema AS c, sqlite_schema AS d,"
    " sqlite_schema AS e, sqlite_schema AS f;",
]

WRITES = [
    "DELETE FROM jobs;",
    "DROP TABLE jobs;",
    "INSERT INTO jobs SELECT * FROM jobs;",
    "UPDATE jobs SET state = 'FINISHED' RETURNING *;",
    "REPLACE INTO jobs (jobID) VALUES (1);",
    "WITH x AS (SELECT 1) DELETE FROM jobs;",
    "CREATE TABLE x (a);",
    "CREATE TEMP TABLE x AS SELECT * FROM jobs;",
    "CREATE VIRTUAL TABLE x USING fts5(a);",
    "CREATE TRIGGER t AFTER INSERT ON jobs BEGIN DELETE FROM jobs; END;",
    "ALTER TABLE jobs RENAME TO old;",
    "BEGIN EXCLUSIVE;",
    "SAVEPOINT a;",
    "COMMIT;",
    "VACUUM;",
    "VACUUM INTO '/tmp/x.db';",
    "REINDEX;",
    "ANALYZE;",
    "ATTACH '/etc/passwd' AS x;",
    "ATTACH ':memory:' AS x;",
    "DETACH main;",
    "PRAGMA writable_schema = ON;",
    "PRAGMA journal_mode = DELETE;",
    "PRAGMA query_only = OFF;",
    "PRAGMA integrity_check;",
    "PRAGMA hard_heap_limit = 0;",
    "PRAGMA wal_checkpoint(TRUNCATE);",
    "SELECT * FROM pragma_database_list;",
    "SELECT * FROM pragma_integrity_check;",
    "SELECT load_extension('/tmp/x.so');",
    "SELECT readfile('/etc/passwd');",
    "SELECT writefile('/tmp/x', 'x');",
    "SELECT edit('x', 'sh');",
    "SELECT fts3_tokenizer('simple', x'4141414141414141');",
    "SELECT * FROM sqlite_dbpage;",
    "SELECT * FROM dbstat;",
    "SELECT * FROM fsdir('/');",
    "EXPLAIN DELETE FROM jobs;",
]

TEXTS = [
    ";",
    ";;;;;",
    "-- nothing;",
    "/* nothing ;",
    "SELECT 1 -- ;",
    "SELECT 1 /* ;",
    "SELECT 1; SELECT 2;",
    "SELECT 1; DELETE FROM jobs;",
    "SELECT 'x;",
    'SELECT "x;',
    "SELECT x'0;",
    "SELECT \ud800;",
    "SELECT '\U0010ffff';",
    "SELECT ?1, :a, @b, $c;",
    "SELECT ?32766;",
    "SELECT sqlite_version(), sqlite_source_id(), sqlite_compileoption_get(1);",
    "SELECT likely(1), unlikely(1), likelihood(1, 0.5), subtype(1);",
    "SELECT 1e999, -1e999, 9223372036854775807 + 1, abs(-9223372036854775807 - 1);",
    "SELECT random() % 0, 1 / 0, 1 << 64, 1 >> -64;",
    "SELECT CAST(x'ff' AS TEXT);",
    _filled("SELECT 1 ", "/**/", ";"),
    _filled("SELECT '", "'';", "';"),
    _filled("SELECT '", "x", "';"),
    _filled("SELECT ", "x", ";"),
    _filled("SELECT ", "9", ";"),
    _filled("SELECT 0.", "9", "e9;"),
    _filled("SELECT x'", "00", "';"),
    _filled("", "\n", "SELECT 1;"),
    _filled("", "SELECT 1;", ";"),
    _filled("SELECT 1 ", "COLLATE nocase ", ";"),
    _filled("SELECT 1 FROM jobs ", "-- comment\n", ";"),
    _filled("SELECT '", "é", "';"),
]

KINDS = {
    "recursion": RECURSION,
    "blobs": BLOBS,
    "formats": FORMATS,
    "patterns": PATTERNS,
    "replacements": REPLACEMENTS,
    "aggregates": AGGREGATES,
    "JSON": JSON,
    "deep": DEEP,
    "terms": TERMS,
    "cross joins": CROSS_JOINS,
    "writes": WRITES,
    "texts": TEXTS,
}
"""The texts by kind."""
