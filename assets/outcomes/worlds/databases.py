"""The kind `sqlite`: a database in one file, read by a logical dump."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kind import WorldKind, add_fact, read_file_facts
from assets.outcomes.worlds.template import draw_shop
from assets.outcomes.worlds.tree import Tree
from warehouse.storage.digest import sha256

DATABASE_FILE = "shop.db"
_BESIDE = (f"{DATABASE_FILE}-wal", f"{DATABASE_FILE}-journal", f"{DATABASE_FILE}-shm")
_MOST_ROWS, _MOST_STEPS = 20_000, 2_000  # a dump's rows; its work, in 10,000 steps of the machine


def generate_shop_database(rng: Random, size: int) -> Tree:
    """Customers, products and orders of a shop."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table in draw_shop(rng, size):
            columns = [f"{name} {kind} NOT NULL" for name, kind in table.columns]
            columns[0] = columns[0].replace("NOT NULL", "PRIMARY KEY")
            database.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
            places = ", ".join("?" * len(columns))
            database.executemany(f"INSERT INTO {table.name} VALUES ({places})", table.rows)
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
