"""The questions to PostgreSQL's catalogue for the drift check; `tables` are the names of ours.

A query gives the subject, the kind and name of a thing where it is not plain, and then the aspects.
"""

from __future__ import annotations

_OURS = (
    "c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
    " AND c.relname = ANY (%(tables)s)"
)

TABLE_ASPECTS = ("type", "UNLOGGED", "row security", "inherits")
TABLES = f"""
SELECT c.relname,
  CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'p' THEN 'partitioned table' WHEN 'f' THEN 'foreign table' ELSE c.relkind::text END,
  c.relpersistence = 'u', c.relrowsecurity,
  EXISTS (SELECT FROM pg_inherits AS h WHERE c.oid IN (h.inhrelid, h.inhparent))
FROM pg_class AS c WHERE {_OURS} AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
"""

COLUMN_ASPECTS = (
    "type",
    "NOT NULL",
    "default",
    "place in the primary key",
    "identity",
    "generated",
    "collation",
)
COLUMNS = f"""
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
  CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END,
  array_position(i.indkey::int2[], a.attnum) + 1,
  CASE a.attidentity WHEN 'a' THEN 'always' WHEN 'd' THEN 'by default' END,
  CASE WHEN a.attgenerated <> '' THEN pg_get_expr(d.adbin, d.adrelid) END,
  l.collname
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
WHERE {_OURS} ORDER BY c.relname, a.attnum
"""

# A check or key is the same whatever its name. One that was never validated, or whose triggers were
# switched off, does not hold for every row.
_CHECKS = f"""
SELECT c.relname, pg_get_constraintdef(k.oid, true), k.convalidated
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
WHERE {_OURS} AND k.contype = 'c'
"""
_FOREIGN_KEYS = f"""
SELECT c.relname, 'FOREIGN KEY (' || own.names || ') to ' || k.confrelid::regclass
    || ' (' || theirs.names || ')',
  CASE WHEN k.condeferrable AND k.condeferred THEN 'deferred' ELSE 'immediate' END,
  k.convalidated,
  NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgconstraint = k.oid
    AND t.tgenabled NOT IN ('O', 'A')),
  CASE k.confupdtype WHEN 'a' THEN 'NO ACTION' WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE'
    WHEN 'n' THEN 'SET NULL' ELSE 'SET DEFAULT' END,
  CASE k.confdeltype WHEN 'a' THEN 'NO ACTION' WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE'
    WHEN 'n' THEN 'SET NULL' ELSE 'SET DEFAULT' END
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
CROSS JOIN LATERAL (SELECT string_agg(a.attname, ', ' ORDER BY n.place) AS names
  FROM unnest(k.conkey) WITH ORDINALITY AS n(attnum, place)
  JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = n.attnum) AS own
CROSS JOIN LATERAL (SELECT string_agg(a.attname, ', ' ORDER BY n.place) AS names
  FROM unnest(k.confkey) WITH ORDINALITY AS n(attnum, place)
  JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = n.attnum) AS theirs
WHERE {_OURS} AND k.contype = 'f'
"""
_OTHER_CONSTRAINTS = f"""
SELECT c.relname, pg_get_constraintdef(k.oid, true),
  CASE WHEN k.condeferrable THEN 'deferrable' ELSE 'immediate' END
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
WHERE {_OURS} AND k.contype IN ('u', 'x')
"""

# What an index costs in space is its operator's to decide. The columns tell the primary key, and
# the constraints tell what is unique by one.
_INDEXES = f"""
SELECT c.relname, 'index ' || n.relname, i.indisunique,
  substring(split_part(regexp_replace(pg_get_indexdef(n.oid, 0, true),
    ' WITH \\([^)]*\\)| TABLESPACE .*?(?= WHERE |$)', ''), ' WHERE ', 1) FROM ' USING (.*)$'),
  pg_get_expr(i.indpred, i.indrelid, true), i.indisvalid
FROM pg_index AS i JOIN pg_class AS n ON n.oid = i.indexrelid JOIN pg_class AS c ON c.oid = i.indrelid
WHERE {_OURS} AND NOT i.indisprimary
AND NOT EXISTS (SELECT FROM pg_constraint AS k
  WHERE k.conindid = n.oid AND k.contype IN ('u', 'x') AND k.conrelid = c.oid)
"""
_TRIGGERS = f"""
SELECT c.relname, 'trigger ' || t.tgname,
  substring(pg_get_triggerdef(t.oid, true) FROM '^CREATE (?:CONSTRAINT )?TRIGGER (?:"(?:[^"]|"")*"|\\S+) (.*)$'),
  CASE t.tgenabled WHEN 'O' THEN 'yes' WHEN 'A' THEN 'yes' WHEN 'D' THEN 'no' ELSE 'on replicas' END
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE {_OURS} AND NOT t.tgisinternal
"""
_RULES = f"""
SELECT c.relname, 'rule ' || r.rulename
FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
WHERE {_OURS} AND c.relkind <> 'v' AND c.relkind <> 'm'
"""
_SEQUENCES = f"""
SELECT c.relname || '.' || a.attname, 'sequence ' || n.relname, s.seqtypid::regtype::text, s.seqstart,
  s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle
FROM pg_sequence AS s JOIN pg_class AS n ON n.oid = s.seqrelid
JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = n.oid AND d.deptype IN ('i', 'a')
JOIN pg_class AS c ON c.oid = d.refobjid
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
WHERE {_OURS}
"""

HANGING_ON_TABLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (_CHECKS, ("validated",)),
    (_FOREIGN_KEYS, ("check", "validated", "switched on", "ON UPDATE", "ON DELETE")),
    (_OTHER_CONSTRAINTS, ("check",)),
    (_INDEXES, ("UNIQUE", "what is indexed", "WHERE", "valid")),
    (_TRIGGERS, ("text", "switched on")),
    (_RULES, ()),
    (
        _SEQUENCES,
        ("type", "START", "INCREMENT", "MINVALUE", "MAXVALUE", "CACHE", "CYCLE"),
    ),
)

FUNCTION_ASPECTS = (
    "arguments",
    "result",
    "language",
    "volatility",
    "SECURITY DEFINER",
    "STRICT",
    "settings",
    "text",
)
FUNCTIONS = """
SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')',
  pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
  CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
  p.prosecdef, p.proisstrict, array_to_string(p.proconfig, ', '), p.prosrc
FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
"""
