"""The kind `sqlite`: a database in one file, read by a logical dump."""

import sqlite3
from contextlib import closing
from random import Random

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.contained_reading import describe_unreadable, read_contained
from assets.outcomes.worlds.kind import WorldKind, read_file_facts
from assets.outcomes.worlds.template import draw_shop
from assets.outcomes.worlds.tree import Tree

DATABASE_FILE = "shop.db"
_SUFFIXES = ("", "-wal", "-journal")
_FILES = (*(f"{DATABASE_FILE}{suffix}" for suffix in _SUFFIXES), f"{DATABASE_FILE}-shm")


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
    node = tree.get(DATABASE_FILE)
    if not isinstance(node, bytes):
        return read_file_facts(tree)
    facts = read_file_facts({path: each for path, each in tree.items() if path not in _FILES})
    files = {suffix: tree.get(f"{DATABASE_FILE}{suffix}") for suffix in _SUFFIXES}
    (answer,) = read_contained("sqlite", [files])
    if "facts" in answer:
        facts |= answer["facts"]
    else:
        facts[DATABASE_FILE] = describe_unreadable(node, answer["why"])
    return dict(sorted(facts.items()))


SQLITE_KIND = WorldKind("sqlite", {"shop": generate_shop_database}, read_database)
