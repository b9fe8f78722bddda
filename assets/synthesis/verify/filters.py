"""Filters over a whole partition of pairs: descriptions handed back, and requests said before.

rows -> cosine with the description -> flaw, verdict -> near-copies point to the row that stays

SemHash selects greedily in the order given: the first of its kind stays and every copy points at
it. Below `EXACT` texts neighbours are exact; above, usearch's graph finds them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import ONE_CALL, PARALLEL, SEQUENTIAL, dump_text
from assets.synthesis.verify.conversation import Unreadable, read_conversation
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.verify import decide

Json = Any
Row = Mapping[str, Json]
Embed = Callable[[Sequence[str]], np.ndarray]
_ECHO = "cosine"  # the `path` of the flaw that this filter adds and removes


def filter_rows(
    rows: Sequence[Row], contracts: Mapping[str, Row], embed: Embed, policy: SynthesisPolicy
) -> list[dict[str, Json]]:
    """The rows of PAIRS, in the order given, with `cosine`, `flaws`, `verdict` and `twin_of` set.

    `contracts`: digest -> contract. `embed` returns unit vectors. What an earlier run of this
    filter found is forgotten first, so running it again changes nothing; the order of the rows
    decides nothing either. Rows that are not `ok` pass through untouched.
    """
    made = [dict(row) for row in rows]
    whole = [row for row in made if row["status"] == "ok"]
    said = [_join_user_text(row) for row in whole]
    vectors = _embed_distinct(
        [*said, *(d for row in whole for d in _list_descriptions(row, contracts))], embed
    )
    for row, text in zip(whole, said, strict=True):
        row["cosine"] = _compute_cosine(text, _list_descriptions(row, contracts), vectors)
        _judge_echo(row, policy.copies_above)
        row["twin_of"] = None
    left = [
        (row, text) for row, text in zip(whole, said, strict=True) if row["verdict"] != "reject"
    ]
    for alike in _group_alike(left):
        _mark_twins(alike, vectors, policy.twins_above)
    return made


def compute_cosines(
    pairs: Sequence[tuple[str, str]], embed: Embed, *, batch: int = 4096
) -> list[float | None]:
    """For each (request, description) their cosine, or None where either is empty."""
    found: list[float | None] = []
    for start in range(0, len(pairs), batch):
        part = pairs[start : start + batch]
        vectors = _embed_distinct([text for pair in part for text in pair], embed)
        found += [_compute_cosine(text, [described], vectors) for text, described in part]
    return found


def make_echo_finding(cosine: float | None, above: float) -> Finding | None:
    """The flaw of a request that repeats the tool's description."""
    if cosine is None or cosine <= above:
        return None
    reason = f"cosine with the description {cosine:.2f} > {above:g}"
    return Finding("copies_description", _ECHO, reason)


def _judge_echo(row: dict[str, Json], above: float) -> None:
    flaws = json.loads(row.get("flaws") or "[]")
    kept = [f for f in flaws if (f["kind"], f["path"]) != ("copies_description", _ECHO)]
    found = make_echo_finding(row["cosine"], above)
    kept += [asdict(found)] if found else []
    row["flaws"] = dump_text(kept)
    row["verdict"] = decide(Finding(**flaw) for flaw in kept).verdict


def _join_user_text(row: Row) -> str:
    """All that the user says in a row; the first message alone when the rest cannot be read."""
    try:
        return read_conversation(row).text
    except Unreadable:
        return str(row.get("instruction") or "")


def _list_descriptions(row: Row, contracts: Mapping[str, Row]) -> list[str]:
    try:
        digests = {golden.contract_digest for golden in read_conversation(row).calls}
    except Unreadable:
        digests = set[str]()
    known = sorted((digests or {row["contract_digest"]}) & contracts.keys())
    return [str(contracts[digest].get("description") or "") for digest in known]


def _embed_distinct(texts: Iterable[str], embed: Embed) -> dict[str, np.ndarray]:
    distinct = sorted({text for text in texts if text.strip()})
    return dict(zip(distinct, embed(distinct), strict=True)) if distinct else {}


def _compute_cosine(
    text: str, descriptions: Iterable[str], vectors: Mapping[str, np.ndarray]
) -> float | None:
    if text not in vectors:
        return None
    found = [float(vectors[text] @ vectors[d]) for d in descriptions if d in vectors]
    return round(max(found), 4) if found else None  # the last bits change with the batch


def _group_alike(
    rows: Iterable[tuple[dict[str, Json], str]],
) -> list[list[tuple[dict[str, Json], str]]]:
    """Rows that could stand for each other: one call, several calls, or the same other task. A
    request that lacks a value is meant to resemble the one that has it."""
    groups: dict[str, list[tuple[dict[str, Json], str]]] = {}
    for row, text in rows:
        if text.strip():
            groups.setdefault(_LIKE.get(row["task"]) or row["task"], []).append((row, text))
    return list(groups.values())


_LIKE = {**dict.fromkeys(ONE_CALL, "one"), **dict.fromkeys((PARALLEL, SEQUENTIAL), "several")}


def _mark_twins(
    alike: list[tuple[dict[str, Json], str]], vectors: Mapping[str, np.ndarray], above: float
) -> None:
    alike.sort(key=lambda item: _make_sort_key(item[0]))
    texts = [text for _, text in alike]
    found = find_twins(texts, np.stack([vectors[text] for text in texts]), above)
    for (row, _), first in zip(alike, found, strict=True):
        row["twin_of"] = None if first is None else alike[first][0]["pair_id"]


def _make_sort_key(row: Row) -> tuple[str, str, str, int, str]:
    """Where a row stands among all: the first of its kind in this order stays."""
    return row["server_id"], row["tool"], row["task"], int(row["index"]), row["pair_id"]


# Exact search of so many 384-dimensional vectors takes seconds; four times as many take a minute.
EXACT = 10_000


class _NoEncoder:
    """SemHash wants an encoder for texts that come later; none do."""

    def encode(self, inputs: object, **_: object) -> np.ndarray:
        raise NotImplementedError("vectors are given")


def find_twins(texts: Sequence[str], vectors: np.ndarray, above: float) -> list[int | None]:
    """For each text the index of the earlier, kept text that it nearly repeats, or None.

    `vectors`: one unit vector a text. A text repeats another when their cosine is `above` or more.
    """
    from semhash import SemHash

    if len(texts) < 2:
        return [None] * len(texts)
    backend = "basic" if len(texts) <= EXACT else "usearch"
    records = [{"place": str(place)} for place in range(len(texts))]
    index = SemHash.from_embeddings(
        np.asarray(vectors, dtype=np.float32), records, _NoEncoder(), ["place"], backend
    )
    first: list[int | None] = [None] * len(texts)
    for copy in index.self_deduplicate(threshold=above).filtered:
        first[int(copy.record["place"])] = int(copy.duplicate_of["place"])
    return first
