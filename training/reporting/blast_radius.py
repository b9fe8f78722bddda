"""Blast radius: everything that was made of a tool's contract, and so moves when it changes.

A pair depends on a contract when it is about it, calls it, or when a prompt showed it as a rival.
A model depends on it through the training set it learnt from, in any version that was ever kept.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.synthesis.tables import read_goldens
from training.prompts.render import read_json_list
from warehouse.errors import UnusableInput
from warehouse.json_types import Row
from warehouse.sanitize.untrusted_text import escape_text

Seen = tuple[str, str, str]  # server, tool, contract digest
_NEAR = 5
_LONGEST = 120  # characters of what was asked that an error repeats


class UnknownTool(UnusableInput):
    """No contract of that name was ever published."""


class AmbiguousTool(UnusableInput):
    """Several servers have a tool of that name."""


@dataclass(frozen=True)
class ContractTarget:
    """The contracts asked about. server_id and tool are None where a digest was given."""

    digests: frozenset[str]
    server_id: str | None = None
    tool: str | None = None

    def is_about(self, row: Row) -> bool:
        """Whether a row is about the target. Two servers may have tools of one contract: where a
        tool was named, it is that server's."""
        named = self.tool is None or (row["server_id"], row["tool"]) == (self.server_id, self.tool)
        return named and row["contract_digest"] in self.digests


@dataclass(frozen=True)
class ContractProducts:
    """What was made of contracts, as plain rows. stored: keys -> those that the vector store
    lacks. sets: name -> rows of each training set ever kept. models: their cards."""

    pairs: Iterable[Row] = ()
    judgements: Iterable[Row] = ()
    vectors: Iterable[Row] = ()
    missing: Callable[[Collection[str]], Collection[str]] = lambda keys: set()
    vector_key: Callable[[str, str], str] = lambda text, embedder: f"{embedder}|{text}"
    sets: Mapping[str, Iterable[Row]] = field(default_factory=dict)
    current_set: str = ""
    evaluations: Mapping[str, Iterable[Row]] = field(default_factory=dict)
    models: Iterable[Row] = ()
    champions: Iterable[Row] = ()
    release: Row = field(default_factory=dict)
    index: Iterable[Row] = ()


def find_tool(asked: str, seen: Iterable[Seen]) -> ContractTarget:
    """The target of `server_id::tool`, of `tool` where one server has it, or of a contract digest.

    seen: every contract ever published. Raises UnknownTool or AmbiguousTool, with names that are
    near.
    """
    listed = list(seen)
    quoted = escape_text(asked[:_LONGEST])
    if any(digest == asked for _, _, digest in listed):
        return ContractTarget(frozenset({asked}))
    ids = {ToolId(server, tool) for server, tool, _ in listed}
    owners = {item for item in ids if str(item) == asked} or {
        item for item in ids if item.tool == asked
    }
    if len(owners) > 1:
        some = ", ".join(escape_text(str(owner)) for owner in sorted(owners)[:_NEAR])
        raise AmbiguousTool(f"{quoted} is a tool of {len(owners)} servers: say which, e.g. {some}")
    if not owners:
        names = sorted({name for item in ids for name in (str(item), item.tool)})
        near = difflib.get_close_matches(asked, names, n=_NEAR, cutoff=0.6)
        hint = f"; near: {', '.join(map(escape_text, near))}" if near else ""
        raise UnknownTool(
            f"{quoted or 'an empty name'} was never published: expected server_id::tool, a tool's"
            f" name, or a contract digest (c1:…){hint}"
        )
    [owner] = owners
    digests = frozenset(digest for *about, digest in listed if tuple(about) == owner)
    return ContractTarget(digests, *owner)


def find_blast_radius(target: ContractTarget, made: ContractProducts) -> dict[str, Any]:
    """Everything that depends on the target: lists, each with its counts."""
    pairs = [one for row in made.pairs if (one := _match_pair(target, row))]
    ids = {row["pair_id"] for row in pairs}
    sets = _match_training_sets(target, made, ids)
    learnt = {item["training_set"] for item in sets}
    adapters = [
        {"model": card["name"], **_copy_columns(card, "role", "base", "training_set")}
        for card in made.models
        if card.get("training_set") in learnt
    ]
    trained = {adapter["model"] for adapter in adapters}
    judged = [
        _copy_columns(row, "pair_id", "marketplace", "judge", "verdict", "score")
        for row in made.judgements
        if row["pair_id"] in ids
    ]
    asked = [
        {"role": role, "model": row["model"], "pair_id": row["pair_id"]}
        for role, rows in made.evaluations.items()
        for row in rows
        if row["pair_id"] in ids
    ]
    released = [
        {"release": made.release["release"], "role": role, "model": name}
        for role, name in (made.release.get("models") or {}).items()
        if name in trained
    ]
    indexed = [{"tool_id": row["tool_id"]} for row in made.index if target.is_about(row)]
    champions = [dict(row) for row in made.champions if row["model"] in trained]
    return {
        "server_id": target.server_id,
        "tool": target.tool,
        "contracts": sorted(target.digests),
        "pairs": _count_and_list(pairs, "task", "verdict", "because"),
        "judgements": _count_and_list(judged, "verdict"),
        "vectors": _count_and_list(list(_match_vectors(target, made)), "kind"),
        "router_index": _count_and_list(indexed),
        "eval_items": _count_and_list(asked, "role", "model"),
        "training_sets": _count_and_list(sets, "current"),
        "adapters": _count_and_list(adapters, "role"),
        "champions": _count_and_list(champions, "role"),
        "release": _count_and_list(released),
    }


def _match_pair(target: ContractTarget, row: Row) -> dict[str, Any] | None:
    """The row's entry, with the nearest reason for which it depends on the target."""
    if target.is_about(row):
        because = "about"
    elif any(target.is_about(vars(golden)) for golden in read_goldens(row)):
        because = "calls"
    elif target.digests & {
        *read_json_list(row.get("contracts")),
        *read_json_list(row.get("offered")),
    }:
        because = "shown"
    else:
        return None
    named = ("pair_id", "marketplace", "server_id", "tool", "task", "status", "verdict")
    return {**_copy_columns(row, *named), "because": because}


def _match_vectors(target: ContractTarget, made: ContractProducts) -> Iterator[dict[str, Any]]:
    """Vectors of the tool, and of its server, whose text lists the tool's name."""
    listed = [row for row in made.vectors if target.is_about(row)]
    servers = {row["server_id"] for row in listed} | ({target.server_id} - {None})
    listed += [
        row for row in made.vectors if row["kind"] == "server" and row["server_id"] in servers
    ]
    keys = {made.vector_key(row["text_digest"], row["embedder"]) for row in listed}
    lost = set(made.missing(keys)) if keys else set()
    for row in listed:
        key = made.vector_key(row["text_digest"], row["embedder"])
        named = ("marketplace", "server_id", "tool", "kind", "embedder", "text_digest")
        yield {**_copy_columns(row, *named), "key": key, "stored": key not in lost}


def _match_training_sets(
    target: ContractTarget, made: ContractProducts, ids: Collection[str]
) -> list[dict[str, Any]]:
    results = []
    for name, rows in made.sets.items():
        about = beside = 0
        for row in rows:
            own = target.is_about(row) or row["pair_id"] in ids
            about += own
            beside += not own and bool(target.digests & {*read_json_list(row.get("negatives"))})
        if about or beside:
            current = name == made.current_set
            results.append(
                {"training_set": name, "current": current, "rows": about, "as_negative": beside}
            )
    return results


def _count_and_list(rows: Sequence[Mapping[str, Any]], *by: str) -> dict[str, Any]:
    tallies = {name: Counter(str(row[name]) for row in rows) for name in by}
    counts = {f"by_{name}": dict(sorted(tally.items())) for name, tally in tallies.items()}
    return {"count": len(rows), **counts, "rows": list(rows)}


def _copy_columns(row: Row, *names: str) -> dict[str, Any]:
    return {name: row.get(name) for name in names}
