"""The kind `memory`: a knowledge graph in one file of JSON Lines, as server-memory keeps it."""

import json
from collections import Counter
from random import Random
from typing import Any

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.errors import WorldFailed
from assets.outcomes.worlds.kinds.kind import Kind, add_fact, read_file_facts, read_json
from assets.outcomes.worlds.template import draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree

FILE = "memory.jsonl"
_MOST_LINES = 20_000
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
    return {FILE: text.encode()}


def read_graph(tree: Tree) -> Facts:
    """`entity/NAME` -> type and observations; `relation/FROM/TYPE/TO` -> {}; `line/NUMBER` -> what
    is neither; other files as they are. The order of lines, and members that a server adds (an id,
    a date), are left out."""
    node = tree.get(FILE)
    others = {path: one for path, one in tree.items() if path != FILE}
    facts = read_file_facts(others if isinstance(node, bytes) else tree)
    counts = Counter[str]()
    for number, line in enumerate(_split_lines(node), 1):
        if number > _MOST_LINES:
            raise WorldFailed(f"{FILE} holds more than {_MOST_LINES:,} lines")
        add_fact(facts, *_read_line(line, number), counts)
    return dict(sorted(facts.items()))


def _split_lines(node: Node) -> list[str]:
    text = node.decode("utf-8", "replace") if isinstance(node, bytes) else ""
    return [line for line in text.split("\n") if line.strip()]


def _read_line(line: str, number: int) -> tuple[str, Any]:
    """The fact of one line: its key and value."""
    found = read_json(line)
    if not isinstance(found, dict):
        return f"line/{number}", line
    kind = found.get("type")
    if kind == "entity":
        kept = {name: found.get(name) for name in ("entityType", "observations")}
        return f"entity/{found.get('name')}", kept
    if kind == "relation":
        ends = (found.get("from"), found.get("relationType"), found.get("to"))
        return "relation/" + "/".join(map(str, ends)), {}
    return f"line/{number}", line


def _cut_line(tree: dict[str, Node], path: str) -> Node:
    """The first line cut in half, as by a write that was killed."""
    data = tree[path]
    assert isinstance(data, bytes)
    first, _, rest = data.partition(b"\n")
    return first[: len(first) // 2] + b"\n" + rest


KIND = Kind("memory", {"team": generate_team}, read_graph, {"tear": _cut_line})
