"""The kinds `folder` (an office's or a vault's plain files), `memory` and `sqlite`."""

import csv
import io
import json
import sqlite3
from collections import Counter
from contextlib import closing
from random import Random
from typing import Any

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.contained_reading import describe_unreadable, read_contained
from assets.outcomes.worlds.file_reader import add_fact
from assets.outcomes.worlds.kind import WorldKind, read_file_facts, read_json
from assets.outcomes.worlds.template import draw_shop, draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree, WorldFailed

_FOLDERS = ("reports", "notes", "letters", "archive", "inbox")


def generate_office(rng: Random, size: int) -> Tree:
    """Reports, notes, letters and a few tables, in folders; `archive` is empty."""
    words, tree = load_words(), dict[str, Node](dict.fromkeys(_FOLDERS))
    topics = rng.sample(words["topics"], len(words["topics"]))
    for number in range(size):
        topic, person = topics[number % len(topics)], rng.choice(words["people"])
        place = number // len(topics) + 1
        folder = _FOLDERS[number % 3]
        path = f"{folder}/{topic}-{rng.choice(words['things'])}{f'-{place}' if place > 1 else ''}"
        if number % 4 == 3:
            tree[f"{path}.csv"] = _write_table(rng)
        else:
            tree[f"{path}.md"] = _write_text(rng, topic, person)
    tree["README.md"] = b"# Shared folder\n\nReports, notes and letters of the team.\n"
    return tree


def generate_vault(rng: Random, size: int) -> Tree:
    """Markdown notes with front matter, tags and links to each other."""
    words, tree = load_words(), dict[str, Node]()
    names = [f"{topic.title()} {rng.choice(words['things'])}" for topic in words["topics"][:size]]
    for number, name in enumerate(names):
        folder = ("Projects", "People", "Daily")[number % 3]
        linked = rng.choice([item for item in names if item != name] or [name])
        lines = ["---", f"title: {name}", f"owner: {rng.choice(words['people'])}"]
        lines += [f"status: {rng.choice(('active', 'waiting', 'done'))}", "---", f"# {name}", ""]
        lines += [f"{draw_words('sentence', rng)}.", "", f"See [[{linked}]]."]
        lines += ["", f"#{rng.choice(words['topics'])} #{rng.choice(words['colours'])}", ""]
        tree[f"{folder}/{name}.md"] = "\n".join(lines).encode()
    return tree


def _write_text(rng: Random, topic: str, person: str) -> bytes:
    lines = [f"# {topic.title()}", "", f"Owner: {person}", f"Amount: {rng.randint(100, 9900)}", ""]
    lines += [f"- {draw_words('sentence', rng)}" for _ in range(rng.randint(2, 5))]
    return ("\n".join(lines) + "\n").encode()


def _write_table(rng: Random) -> bytes:
    words, file = load_words(), io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("product", "city", "amount"))
    for product in rng.sample(words["products"], 5):
        table.writerow((product, rng.choice(words["cities"]), rng.randint(1, 90)))
    return file.getvalue().encode()


FOLDER_KIND = WorldKind(
    "folder", {"office": generate_office, "vault": generate_vault}, read_file_facts
)


MEMORY_FILE = "memory.jsonl"
_MOST_LINES, _MOST_GRAPH = 20_000, 4 << 20
_RELATIONS = ("works_on", "manages", "knows", "reviews")


def generate_team(rng: Random, size: int) -> Tree:
    """People and projects, with observations, and relations between them."""
    words = load_words()
    people = [
        f"{first} {last}"
        for first, last in zip(
            rng.sample(words["people"], min(size, len(words["people"]))),
            rng.choices(words["surnames"], k=size),
            strict=False,
        )
    ]
    projects = [f"{topic} project" for topic in rng.sample(words["topics"], max(2, size // 3))]
    lines = []
    for name in (*people, *projects):
        kind = "project" if name in projects else "person"
        observations = [f"{draw_words('sentence', rng)}" for _ in range(rng.randint(1, 3))]
        observations.append(
            f"lives in {rng.choice(words['cities'])}" if kind == "person" else "is funded"
        )
        facts = {"type": "entity", "name": name, "entityType": kind}
        lines.append({**facts, "observations": list(dict.fromkeys(observations))})
    for person in people:
        relation = {"from": person, "to": rng.choice(projects)}
        lines.append({"type": "relation", **relation, "relationType": rng.choice(_RELATIONS)})
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return {MEMORY_FILE: text.encode()}


def read_graph(tree: Tree) -> Facts:
    """`entity/NAME` -> type and observations; `relation/FROM/TYPE/TO` -> {}; `line/NUMBER` -> what
    is neither; other files as they are, without order and a server's own members."""
    node = tree.get(MEMORY_FILE)
    others = {path: content for path, content in tree.items() if path != MEMORY_FILE}
    facts = read_file_facts(others if isinstance(node, bytes) else tree)
    counts = Counter[str]()
    if isinstance(node, bytes) and (len(node) > _MOST_GRAPH or node.count(b"\n") > 2 * _MOST_LINES):
        raise WorldFailed(f"{MEMORY_FILE} holds more than {_MOST_LINES:,} lines, or 4 MB")
    text = node.decode("utf-8", "replace") if isinstance(node, bytes) else ""
    for number, line in enumerate([line for line in text.split("\n") if line.strip()], 1):
        if number > _MOST_LINES:
            raise WorldFailed(f"{MEMORY_FILE} holds more than {_MOST_LINES:,} lines")
        add_fact(facts, *_read_line(line, number), counts)
    return dict(sorted(facts.items()))


def _read_line(line: str, number: int) -> tuple[str, Any]:
    entry = read_json(line)
    if not isinstance(entry, dict):
        return f"line/{number}", line
    kind = entry.get("type")
    if kind == "entity":
        facts = {name: entry.get(name) for name in ("entityType", "observations")}
        return f"entity/{entry.get('name')}", facts
    if kind == "relation":
        ends = (entry.get("from"), entry.get("relationType"), entry.get("to"))
        return "relation/" + "/".join(map(str, ends)), {}
    return f"line/{number}", line


MEMORY_KIND = WorldKind("memory", {"team": generate_team}, read_graph)


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
