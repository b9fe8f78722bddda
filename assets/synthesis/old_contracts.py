"""Contracts as they were published once, and which parameters only have another name since."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import polars as pl

from assets.contracts.schema_shapes import collect_properties, list_kinds, resolve
from assets.contracts.snapshot import SNAPSHOTS
from assets.vectors.lexicon import collect_words, split_identifier
from warehouse.json_types import Json, JsonObject
from warehouse.storage.tables import Tables

# Parameters that one description may fit although they differ.
_OPPOSITES = collect_words("""
min max minimum maximum start end begin from to before after since until source target src dst
origin destination first last old new exclude include not left right top bottom""")  # fmt: skip


def read_old_contracts(
    tables: Tables,
    digests: Collection[str],
    marketplace: str | None = None,
    *,
    as_of: float | None = None,
) -> dict[str, dict[str, Any]]:
    """digest -> snapshot row of each of `digests` as last published before `as_of`, and of every
    tool listed beside it; of one marketplace, or of all."""
    rows: dict[str, dict[str, Any]] = {}
    due = set(digests)
    for market in [marketplace] if marketplace else tables.partitions(SNAPSHOTS.name):
        read: set[str] = set()
        for head in reversed(tables.history(SNAPSHOTS.name, market)):
            if not due:
                return rows
            if head.digest in read or (as_of is not None and head.at > as_of):
                continue
            read.add(head.digest)
            frame = tables.read(SNAPSHOTS, market, as_of=head.at)
            servers = frame.filter(pl.col("contract_digest").is_in(list(due)))["server_id"]
            for row in frame.filter(pl.col("server_id").is_in(servers.to_list())).to_dicts():
                rows.setdefault(row["contract_digest"], row)
            due -= rows.keys()
    return rows


def find_renamed_parameters(old: JsonObject, new: JsonObject) -> dict[str, str]:
    """Old name -> new name of each parameter that plainly has another: the same words, or one
    description, but no number, opposite or look-alike."""
    before, after = collect_properties(old, old), collect_properties(new, new)
    gone = {name: before[name] for name in before if name not in after}
    come = {name: after[name] for name in after if name not in before}
    pairs = [(a, b) for a in gone for b in come if _is_renamed(a, gone[a], b, come[b])]
    of, to = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return {a: b for a, b in pairs if of[a] == to[b] == 1}


def _is_renamed(old_name: str, old: Json, new_name: str, new: Json) -> bool:
    kinds = list_kinds(resolve(new, {}))
    before, after = split_identifier(old_name), split_identifier(new_name)
    if not list_kinds(resolve(old, {})) <= kinds:
        return False
    if "".join(before) == "".join(after):
        return True
    if kinds & {"integer", "number"} or {*before, *after} & _OPPOSITES:
        return False
    description = _fold_description(old)
    return len(description.split()) >= 2 and description == _fold_description(new)


def _fold_description(schema: Json) -> str:
    description = schema.get("description") if isinstance(schema, Mapping) else None
    return " ".join(re.findall(r"\w+", str(description or "").casefold()))
