"""What a retriever learns from: rows with one call, their batches, and what is no negative.

A batch is some tools with all their pairs. Its distinct tool texts (those tools and some of their
hard negatives) are encoded once, and every pair is classified among all of them: a tool that is
another pair's positive is a negative for free, and a text can never be its own negative. Against
batches of random pairs this more than halves the tokens, nearly all of which are tool texts. Rows
that name a `set` share batches with rows of that set alone: tools of another origin and style are
told apart by their style.

Never a negative of a pair: its own tool, a twin of it (one tool under two names or on two servers),
a tool that another pair with the same words calls, a tool that the pair's own calls name.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assets.catalogue.identity import find_root
from assets.contracts.canonical import tool_text
from assets.synthesis.tables import ONE_CALL
from training.retriever.settings import HARD, RetrieverSettings
from training.sets.split import TRAIN
from warehouse.json_types import Row

Twins = Mapping[str, set[str]]
TWIN_COSINE = 0.97  # as the training set draws the line (`sets/policy.py`)
_BLOCK = 1024


@dataclass(frozen=True)
class BatchTool:
    """A tool that may be taught or be a negative."""

    text: str
    words: tuple[str, str] | None  # name and description, as plain words
    twins: tuple[str, ...] = ()  # contract digests that are known to be the same tool


@dataclass(frozen=True)
class RetrieverBatch:
    """Queries, distinct texts, and for each query the place of its text and of other right ones."""

    queries: list[str]
    texts: list[str]
    targets: list[int]
    also_right: list[tuple[int, ...]]


def select_teachable_rows(rows: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
    """Rows of the train split with a call to one tool, and how many were left out and why."""
    teachable: list[Row] = []
    counts: Counter[str] = Counter()
    for row in rows:
        if row.get("split", TRAIN) != TRAIN:
            counts["not of the train split"] += 1
        elif (row.get("task") or ONE_CALL[0]) not in ONE_CALL:
            counts[f"task {row['task']}"] += 1
        elif not row.get("positive") or not str(row.get("instruction") or "").strip():
            counts["no tool or no words"] += 1
        else:
            teachable.append(row)
    return teachable, dict(sorted(counts.items()))


def collect_tools(
    rows: Sequence[Row], pool: Mapping[str, Row] | None = None
) -> dict[str, BatchTool]:
    """Digest -> tool, of the rows' own and of the pool's other trained tools. `pool`: what
    `offers.load_pool` gives, digest -> {contract, split, twins}; tools that are only tested on are
    left out, for they must not even be seen as negatives."""
    out = {
        name: BatchTool(
            tool_text(entry["contract"]),
            _normalise_contract_text(entry["contract"]),
            tuple(entry.get("twins") or ()),
        )
        for name, entry in (pool or {}).items()
        if entry.get("split") == TRAIN
    }
    for row in rows:
        twin = out[row["contract_digest"]].twins if row["contract_digest"] in out else ()
        out[row["contract_digest"]] = BatchTool(
            row["positive"], _normalise_contract_text(row.get("contract")), twin
        )
    return out


def find_twin_texts(
    texts: Sequence[str], vectors: np.ndarray, tools: Mapping[str, BatchTool]
) -> Twins:
    """Text -> the texts of the same tool, itself included. `vectors`: unit vectors of `texts`.

    Two texts are one tool when their vectors say so, the pool says so, or their names and
    descriptions are equal; a twin of a twin is a twin.
    """
    up = list(range(len(texts)))

    for start in range(0, len(texts), _BLOCK):  # 10,000 tools at once would be 400 MB
        near = vectors[start : start + _BLOCK] @ vectors.T
        for one, other in zip(*np.nonzero(near > TWIN_COSINE), strict=True):
            up[find_root(up, start + int(one))] = find_root(up, int(other))
    place = {text: at for at, text in enumerate(texts)}
    same: dict[Any, int] = {}
    for tool in tools.values():
        at = place[tool.text]
        if tool.words:
            up[find_root(up, at)] = find_root(up, same.setdefault(tool.words, at))
        for name in tool.twins:
            if name in tools:
                up[find_root(up, at)] = find_root(up, place[tools[name].text])
    groups: dict[int, set[str]] = defaultdict(set)
    for at, text in enumerate(texts):
        groups[find_root(up, at)].add(text)
    return {text: groups[find_root(up, at)] for at, text in enumerate(texts)}


def list_right_texts(
    rows: Sequence[Row], twin: Twins, tools: Mapping[str, BatchTool] | None = None
) -> list[frozenset[str]]:
    """For each row every text that is a right answer to its words."""
    tools = tools or collect_tools(rows)
    texts_of: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        texts_of[_normalise_whitespace(row["instruction"])].add(row["positive"])
    out = []
    for row in rows:
        right = {row["positive"], *texts_of[_normalise_whitespace(row["instruction"])]}
        for call in json.loads(row.get("calls") or "[]"):
            if isinstance(call, dict) and call.get("contract_digest") in tools:
                right.add(tools[call["contract_digest"]].text)
        out.append(frozenset().union(*(twin.get(text, {text}) for text in right)))
    return out


def iterate_batches(
    rows: Sequence[Row],
    settings: RetrieverSettings,
    right: Sequence[frozenset[str]] | None = None,
    tools: Mapping[str, BatchTool] | None = None,
) -> Iterator[RetrieverBatch]:
    """A batch per step, tools shuffled per epoch; a pure function of rows and settings."""
    right = right or [frozenset([row["positive"]]) for row in rows]
    tools = tools or collect_tools(rows)
    pairs_of: dict[str, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        pairs_of[row["positive"]].append(at)
    every = sorted(pairs_of)
    set_of = {row["positive"]: str(row.get("set") or "") for row in rows}
    pooled = sorted({tool.text for tool in tools.values()})
    rng = random.Random(settings.seed)
    for _ in range(settings.epochs):
        order = rng.sample(every, len(every))
        for positives in _cut_within_sets(order, set_of, settings.tools, rng):
            texts = dict.fromkeys(positives)
            for positive in positives:
                answers = frozenset().union(*(right[at] for at in pairs_of[positive]))
                if settings.distractors == HARD:
                    near = json.loads(rows[pairs_of[positive][0]].get("negatives") or "[]")
                    near = [tools[name].text for name in near if name in tools]
                else:
                    near = rng.sample(pooled, min(len(pooled), settings.negatives + len(answers)))
                fit = [text for text in dict.fromkeys(near) if text not in answers]
                drawn = rng.sample(fit, min(settings.negatives, len(fit)))
                texts.update(dict.fromkeys(drawn))
            if len(texts) > 1:
                yield _make_batch(
                    rows, right, [at for positive in positives for at in pairs_of[positive]], texts
                )


def _cut_within_sets(
    order: Sequence[str], set_of: Mapping[str, str], size: int, rng: random.Random
) -> list[list[str]]:
    """Parts of at most `size` texts of one set, those of several sets in random order."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text in order:
        groups[set_of[text]].append(text)
    parts = [
        own[start : start + size] for own in groups.values() for start in range(0, len(own), size)
    ]
    return rng.sample(parts, len(parts)) if len(groups) > 1 else parts


def _make_batch(
    rows: Sequence[Row], right: Sequence[frozenset[str]], part: list[int], texts: Mapping[str, Any]
) -> RetrieverBatch:
    place = {text: at for at, text in enumerate(texts)}
    targets = [place[rows[at]["positive"]] for at in part]
    also = [
        tuple(sorted({place[text] for text in right[at] if text in place} - {target}))
        for at, target in zip(part, targets, strict=True)
    ]
    return RetrieverBatch([rows[at]["instruction"] for at in part], list(texts), targets, also)


def _normalise_contract_text(contract: Any) -> tuple[str, str] | None:
    """Name and description, or None where there is no description to go by."""
    parsed = json.loads(contract) if isinstance(contract, str) else contract
    if not isinstance(parsed, Mapping):
        return None
    description = _normalise_whitespace(str(parsed.get("description") or ""))
    name = "".join(char for char in str(parsed.get("name") or "").casefold() if char.isalnum())
    return (name, description) if name and description else None


def _normalise_whitespace(text: str) -> str:
    return " ".join(text.casefold().split())
