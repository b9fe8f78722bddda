"""The kind `postgres`: a database of a Postgres that runs in the sandbox while the world is open,
reached by a Unix socket in the folder that servers are shown."""

import json
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.errors import WorldFailed, WorldFileError
from assets.outcomes.worlds.kinds.kind import (
    READ_ONLY,
    REMOVE,
    Kind,
    read_file_facts,
    read_json,
)
from assets.outcomes.worlds.kinds.pg_cluster import (
    DATABASE,
    SEED,
    WORKER,
    Cluster,
    quote_names,
)
from assets.outcomes.worlds.kinds.shop import draw_shop, write_sql
from assets.outcomes.worlds.tree import Tree, clear_folder
from assets.servers.deploy.grants import LocalSite

_MOST_ROWS = 20_000
_LIST = """SELECT json_build_array(n.nspname, c.relname,
  (SELECT json_agg(json_build_array(a.attname, format_type(a.atttypid, a.atttypmod))
     ORDER BY a.attnum) FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_index i JOIN pg_attribute a
     ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
     WHERE i.indrelid = c.oid AND i.indisprimary))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY n.nspname, c.relname;"""
_LIST_OTHERS = """SELECT json_build_array(o.kind, o.name, o.text) FROM (
  SELECT CASE c.relkind WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' ELSE 'view' END AS kind,
    c.relname AS name, CASE WHEN c.relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid)
      WHEN c.relkind = 'i' THEN pg_get_indexdef(c.oid) END AS text, c.relnamespace AS space
  FROM pg_class c WHERE c.relkind IN ('i', 'I', 'S', 'v', 'm', 'f')
  UNION ALL SELECT 'function', p.proname, p.prosrc, p.pronamespace FROM pg_proc p
  UNION ALL SELECT 'trigger', t.tgname, pg_get_triggerdef(t.oid), c.relnamespace
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal
  UNION ALL SELECT 'constraint', t.conname, pg_get_constraintdef(t.oid), t.connamespace
    FROM pg_constraint t
  UNION ALL SELECT 'column', c.relname || '.' || a.attname, concat_ws(' DEFAULT ',
      CASE WHEN a.attnotnull THEN 'NOT NULL' ELSE '' END, pg_get_expr(d.adbin, d.adrelid)),
      c.relnamespace
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0 AND NOT a.attisdropped AND (a.attnotnull OR d.oid IS NOT NULL)
  UNION ALL SELECT 'type', t.typname, (SELECT string_agg(e.enumlabel, ', ' ORDER BY
      e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid), t.typnamespace
    FROM pg_type t WHERE t.typtype IN ('e', 'd', 'r')
) o JOIN pg_namespace n ON n.oid = o.space
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY o.kind, o.name, o.text;"""


def generate_shop(rng: Random, size: int) -> Tree:
    """Statements that make customers, products and orders of a shop."""
    sql = ";\n".join(write_sql(draw_shop(rng, size))).replace(" REAL ", " DOUBLE PRECISION ")
    return {"seed.sql": f"{sql};\n".encode()}


class PostgresState:
    """A state that is one database. Facts are read as the worker, who is no superuser: what a
    server put into the database can do no more when we read it."""

    sites: tuple[LocalSite, ...] = ()

    def __init__(self, folder: Path, tree: Tree, fault: Any) -> None:
        self.folder, self._fault = folder, fault
        self._cluster = Cluster(folder.parent / "cluster", folder)
        seeds = [node for path, node in sorted(tree.items()) if path.endswith(".sql")]
        clear_folder(folder)  # a socket that an earlier run left
        try:
            self._cluster.start_server()
            self._load_seed("\n".join(seed.decode() for seed in seeds if isinstance(seed, bytes)))
            self._make_database()
            self.first_facts = self.read_facts()
        except BaseException:
            self._cluster.close()
            raise

    def reset(self) -> None:
        """Takes the database away, whoever uses it, and copies the seed anew."""
        self._cluster.release()
        self._make_database()
        if self._fault is not None:
            self._put_fault()

    def read_facts(self) -> Facts:
        """`TABLE/KEY` -> the row, by its primary key or its place; `schema/TABLE` -> its columns
        and their types; `index/NAME`, `view/NAME`, `constraint/NAME` … -> what defines it. Tables
        outside of `public` stand with their schema's name; statistics and the state of sequences
        are left out. Raises WorldFailed where the worker cannot read."""
        listed = [json.loads(line) for line in self._ask(_LIST)]
        facts: Facts = {}
        for schema, table, columns, keys in listed:
            name = table if schema == "public" else f"{schema}.{table}"
            facts[f"schema/{name}"] = columns or []
            order = ", ".join(quote_names([key]) for key in keys or ()) or "1"
            rows = self._ask(
                f"SELECT row_to_json(t) FROM (SELECT * FROM {quote_names([schema, table])}"
                f" ORDER BY {order} LIMIT {_MOST_ROWS}) t;"
            )
            for number, line in enumerate(rows, 1):
                row = read_json(line)
                whole = keys and isinstance(row, dict)
                key = "/".join(str(row[one]) for one in keys) if whole else str(number)
                facts[f"{name}/{key}"] = row
            if len(facts) > _MOST_ROWS:
                raise WorldFailed(f"the database holds more than {_MOST_ROWS:,} rows")
        for line in self._ask(_LIST_OTHERS):
            kind, name, text = json.loads(line)
            facts[f"{kind}/{name}"] = text
        return dict(sorted(facts.items()))

    def close(self) -> None:
        self._cluster.close()

    def _ask(self, sql: str) -> list[str]:
        sent = f"SET lock_timeout = '5s'; SET search_path = ''; {sql}"
        return self._cluster.run_sql(DATABASE, sent, user=WORKER)

    def _load_seed(self, sql: str) -> None:
        """As the worker, who then owns the tables."""
        self._cluster.run_sql(
            "postgres",
            f"CREATE ROLE {WORKER} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;\n"
            f"CREATE DATABASE {SEED} OWNER {WORKER};",
        )
        self._cluster.run_sql(SEED, f"SET SESSION AUTHORIZATION {WORKER};\n{sql}")

    def _make_database(self) -> None:
        self._cluster.run_sql(
            "postgres",
            f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE);\n"
            f"CREATE DATABASE {DATABASE} TEMPLATE {SEED} OWNER {WORKER} STRATEGY file_copy;\n"
            f"ALTER ROLE {WORKER} RESET ALL; ALTER ROLE {WORKER} PASSWORD NULL;",
        )

    def _put_fault(self) -> None:
        action, target = self._fault.action, self._fault.target
        if action == READ_ONLY:
            sql = f"ALTER ROLE {WORKER} SET default_transaction_read_only = on;"
            self._cluster.run_sql("postgres", sql)
            return
        tables = [fact[7:] for fact in self.first_facts if fact.startswith("schema/")]
        hit = [one for one in tables if fnmatchcase(one, target)]
        if not hit:
            raise WorldFileError(f"a fault {action!r} hits nothing: no table matches {target!r}")
        for table in hit:
            if action == REMOVE:
                self._cluster.run_sql(DATABASE, f"DROP TABLE {quote_names([table])};")
            else:  # others can read it, and wait to write
                held = f"BEGIN; LOCK TABLE {quote_names([table])} IN EXCLUSIVE MODE"
                self._cluster.hold_sql(DATABASE, held)


KIND = Kind(
    "postgres",
    {"shop": generate_shop},
    read_file_facts,
    programs={"initdb": "postgresql", "psql": "postgresql-client", "bwrap": "bubblewrap"},
    open_state=PostgresState,
    faults=(READ_ONLY, REMOVE, "lock"),
)
