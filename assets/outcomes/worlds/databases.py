"""The kind `sqlite`: a database in one file, read by a logical dump."""

import json
import os
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kind import (
    WorldKind,
    add_fact,
    read_file_facts,
    read_json,
)
from assets.outcomes.worlds.template import draw_shop, write_sql
from assets.outcomes.worlds.tree import Tree, WorldFailed, clear_folder
from assets.servers.deploy.grants import SERVER_UID, LocalSite
from assets.servers.recipes.placeholders import DATA
from assets.servers.sandbox.process import SandboxProcess, start
from assets.servers.sandbox.spec import (
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
)
from warehouse.storage.digest import sha256

DATABASE_FILE = "shop.db"
_BESIDE = (f"{DATABASE_FILE}-wal", f"{DATABASE_FILE}-journal", f"{DATABASE_FILE}-shm")
_MOST_ROWS, _MOST_STEPS = 20_000, 2_000  # a dump's rows; its work, in 10,000 steps of the machine


def generate_shop_database(rng: Random, size: int) -> Tree:
    """Customers, products and orders of a shop."""
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in write_sql(draw_shop(rng, size)):
            database.execute(statement)
        database.commit()
        return {DATABASE_FILE: database.serialize()}


def read_database(tree: Tree) -> Facts:
    """`TABLE/KEY` -> the row, by its primary key or its row id; `schema/NAME` -> the statement that
    made it. The layout of pages, free space and the journal's form are left out; other files are
    as they are, and so is a database that cannot be read."""
    others = {path: node for path, node in tree.items() if path not in (DATABASE_FILE, *_BESIDE)}
    facts, node = read_file_facts(others), tree.get(DATABASE_FILE)
    if not isinstance(node, bytes):
        return read_file_facts(tree)
    # A copy: what a server wrote is never opened where it lies, and a write-ahead log is applied.
    with TemporaryDirectory(prefix="toolmill-sqlite-") as folder:
        for path in (DATABASE_FILE, *_BESIDE[:2]):
            if isinstance(data := tree.get(path), bytes):
                (Path(folder) / path).write_bytes(data)
        try:
            facts.update(_dump_database(Path(folder) / DATABASE_FILE))
        except (sqlite3.Error, ValueError) as error:
            facts[DATABASE_FILE] = {
                "is": "unreadable",
                "sha256": sha256(node),
                "why": str(error)[:200],
            }
    return dict(sorted(facts.items()))


def _dump_database(path: Path) -> Facts:
    """Raises sqlite3.Error, or ValueError for more rows than are read."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        steps = iter(range(_MOST_STEPS))
        database.set_progress_handler(lambda: next(steps, None) is None, 10_000)
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        objects = database.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        ).fetchall()
        facts, counts = Facts(), Counter[str]()
        for _, name, sql in objects:
            add_fact(facts, f"schema/{name}", " ".join(str(sql).split()), counts)
        for kind, name, sql in objects:
            if kind == "table" and not str(sql).upper().startswith("CREATE VIRTUAL"):
                for key, row in _dump_table(database, name):
                    add_fact(facts, key, row, counts)
                if len(facts) > _MOST_ROWS:
                    raise ValueError(f"more than {_MOST_ROWS:,} rows")
    return facts


def _dump_table(database: sqlite3.Connection, name: str) -> Iterator[tuple[str, Any]]:
    quoted = '"' + name.replace('"', '""') + '"'
    columns = database.execute(f"PRAGMA table_xinfo({quoted})").fetchall()
    keys = [item[1] for item in sorted(columns, key=lambda column: column[5]) if item[5]]
    order = ", ".join('"' + key.replace('"', '""') + '"' for key in keys) or "1"
    cursor = database.execute(f"SELECT * FROM {quoted} ORDER BY {order} LIMIT {_MOST_ROWS + 1}")
    names = [item[0] for item in cursor.description]
    for number, row in enumerate(cursor, 1):
        values = {column: _show_value(value) for column, value in zip(names, row, strict=True)}
        key = "/".join(str(values[key]) for key in keys) if keys else str(number)
        yield f"{name}/{key}", values


def _show_value(value: Any) -> Any:
    """As JSON: bytes by their digest; as text, a whole number beyond 2**53 and what is infinite."""
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": sha256(value)}
    if isinstance(value, int | float) and not abs(value) < 2**53:
        return str(value)
    return value


SQLITE_KIND = WorldKind("sqlite", {"shop": generate_shop_database}, read_database)


OWNER, WORKER, DATABASE, SEED = "mill", "worker", "shop", "seed"
_CLUSTER, _PASSWORD = "/srv/cluster", "/srv/cluster/.password"
_POLICY = SandboxPolicy(backend="bubblewrap", cpu_s=3600, file_mb=64, memory_mb=512)
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": DATA,
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "20",
    "autovacuum": "off",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "panic",  # nobody reads its log, and a full pipe would stop it
    "log_min_error_statement": "panic",
    "statement_timeout": "30s",
    "timezone": "UTC",
}
_ACCESS = f"local all {OWNER} scram-sha-256\nlocal {DATABASE} {WORKER} trust\n"
_PATIENCE_S, _MOST_OUTPUT = 60.0, 16 << 20


class PostgresCluster:
    """One running Postgres. socket: the folder that holds its socket; other processes, those of a
    sandbox too, reach it there as the worker, without a password."""

    def __init__(self, place: Path, socket: Path) -> None:
        self._data, self._socket, self._secret = place, socket, token_hex(16)
        self._server: SandboxProcess | None = None

    def start_server(self) -> None:
        """Makes an empty cluster and starts it. Raises WorldFailed."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(mode=0o700)
        (self._data / ".password").write_text(self._secret)
        if os.geteuid() == 0:
            os.chown(self._data, SERVER_UID, SERVER_UID)
            os.chown(self._data / ".password", SERVER_UID, SERVER_UID)
        data_folder = f"{_CLUSTER}/data"
        self._run(
            "initdb", "-D", data_folder, "-U", OWNER, f"--pwfile={_PASSWORD}",
            *("-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"),
        )  # fmt: skip
        access = self._data / "data" / "pg_hba.conf"
        access.write_text(_ACCESS)
        words = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        self._server = self._start("postgres", "-D", data_folder, *words)
        deadline = time.monotonic() + _PATIENCE_S
        while not (self._socket / ".s.PGSQL.5432").exists():
            if not self._is_running() or time.monotonic() > deadline:
                raise WorldFailed("postgres does not start in the sandbox")
            time.sleep(0.02)
        self.run_sql("postgres", "SELECT 1", patient=True)

    def run_sql(
        self, database: str, sql: str, *, user: str = OWNER, patient: bool = False
    ) -> list[str]:
        """The lines that statements print, each in a transaction of its own. patient: it may still
        be starting. Raises WorldFailed with what psql says."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._run(*self._list_psql(database, user), sent=sql).splitlines()
            except WorldFailed:
                if not (patient and self._is_running()) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        """Ends the server. Its files stay until it is started again."""
        if self._server is not None:
            self._server.__exit__()
            self._server = None

    def _list_psql(self, database: str, user: str) -> tuple[str, ...]:
        # No file of anybody's is read, and an error ends it.
        quiet = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
        return ("psql", *quiet, "-h", DATA, "-U", user, "-d", database)

    def _run(self, program: str, *words: str, sent: str = "") -> str:
        with self._start(program, *words) as jailed:
            try:
                out, err = jailed.process.communicate(sent.encode(), timeout=_PATIENCE_S)
            except Exception as error:
                raise WorldFailed(f"{program}: {type(error).__name__}") from error
            if jailed.process.returncode:
                message = " ".join(err.decode("utf-8", "replace").split())[:300]
                raise WorldFailed(f"{program}: {message}")
            if len(out) > _MOST_OUTPUT:
                raise WorldFailed(f"{program}: more than {_MOST_OUTPUT:,} bytes")
            return out.decode("utf-8", "replace")

    def _start(self, program: str, *words: str) -> SandboxProcess:
        """In the sandbox; only what needs the cluster's files sees them. Bubblewrap ends it with
        the thread that opened the world."""
        mounts = [SandboxMount(self._socket, DATA, writable=True)]
        if program != "psql":
            mounts.append(SandboxMount(self._data, _CLUSTER, writable=True))
        # /usr/lib/postgresql/15/bin on Debian: what is on PATH is a link or a wrapper.
        executable = Path(os.path.realpath(shutil.which("initdb") or "initdb")).with_name(program)
        env = {"PGPASSWORD": self._secret} if program == "psql" else {}
        uid = SERVER_UID if os.geteuid() == 0 else None
        launch = SandboxLaunch(
            (str(executable), *words), env=env, mounts=tuple(mounts), uid=uid, segments=True
        )
        try:
            return start(launch, _POLICY)
        except (SandboxUnavailable, LaunchRefused, OSError) as error:
            raise WorldFailed(f"{program} does not start in the sandbox: {error}") from error

    def _is_running(self) -> bool:
        return self._server is not None and self._server.process.poll() is None


def quote_names(names: Sequence[str]) -> str:
    """Names as SQL quotes them, joined by dots."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


_MOST_ROWS_POSTGRES = 20_000
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


def generate_shop_sql(rng: Random, size: int) -> Tree:
    """Statements that make customers, products and orders of a shop."""
    sql = ";\n".join(write_sql(draw_shop(rng, size))).replace(" REAL ", " DOUBLE PRECISION ")
    return {"seed.sql": f"{sql};\n".encode()}


class PostgresState:
    """A state that is one database. Facts are read as the worker, who is no superuser: what a
    server put into the database can do no more when we read it."""

    sites: tuple[LocalSite, ...] = ()

    def __init__(self, folder: Path, tree: Tree) -> None:
        self.folder = folder
        self._cluster = PostgresCluster(folder.parent / "cluster", folder)
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
        """Replaces the database by a copy of the seed, even while it is in use."""
        self._make_database()

    def read_facts(self) -> Facts:
        """`TABLE/KEY` -> the row, by its primary key or its place; `schema/TABLE` -> its columns
        and their types; `index/NAME`, `view/NAME`, `constraint/NAME` … -> what defines it. Tables
        outside of `public` stand with their schema's name; statistics and the state of sequences
        are left out. Raises WorldFailed where the worker cannot read."""
        tables = [json.loads(line) for line in self._ask(_LIST)]
        facts: Facts = {}
        for schema, table, columns, keys in tables:
            name = table if schema == "public" else f"{schema}.{table}"
            facts[f"schema/{name}"] = columns or []
            order = ", ".join(quote_names([key]) for key in keys or ()) or "1"
            rows = self._ask(
                f"SELECT row_to_json(t) FROM (SELECT * FROM {quote_names([schema, table])}"
                f" ORDER BY {order} LIMIT {_MOST_ROWS_POSTGRES}) t;"
            )
            for number, line in enumerate(rows, 1):
                row = read_json(line)
                whole = keys and isinstance(row, dict)
                key = "/".join(str(row[key]) for key in keys) if whole else str(number)
                facts[f"{name}/{key}"] = row
            if len(facts) > _MOST_ROWS_POSTGRES:
                raise WorldFailed(f"the database holds more than {_MOST_ROWS_POSTGRES:,} rows")
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


POSTGRES_KIND = WorldKind(
    "postgres",
    {"shop": generate_shop_sql},
    read_file_facts,
    programs={"initdb": "postgresql", "psql": "postgresql-client", "bwrap": "bubblewrap"},
    open_state=PostgresState,
)
