"""The training set: accepted pairs, each on its server's side of the split, with hard negatives.

What belongs here: which pairs are in, on which side, beside which look-alike tools, and the
manifest that says what the set was made of. What does not: rendering for a model
(`render.py`, `retriever.py`), deciding when to train (`retrain.py`).
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assets.contracts.canonical import tool_text
from assets.vectors.index import contract_of, text_digest
from training.split import TEST, TEST_SHARE, TRAIN, split_of
from warehouse.digest import digest
from warehouse.files import write_atomically
from warehouse.tables import TableSpec

Row = Mapping[str, Any]
Embed = Callable[[Sequence[str]], np.ndarray]

TRAINING_SET = TableSpec(
    name="training_set",
    key=("pair_id",),
    columns={
        "pair_id": pl.String,
        "server_id": pl.String,
        "tool": pl.String,
        "split": pl.String,  # "train" or "test", by server
        "kind": pl.String,
        "contract_digest": pl.String,
        "contract": pl.String,  # canonical JSON: the set needs no other table to be read
        "instruction": pl.String,
        "arguments": pl.String,  # JSON object
        "positive": pl.String,  # the tool's text
        "text_digest": pl.String,
        "negatives": pl.String,  # JSON list of contract digests of other rows of the same split
        "provider": pl.String,
        "license": pl.String,
    },
)


@dataclass(frozen=True)
class SetPolicy:
    """How a training set is made."""

    test_share: float = TEST_SHARE
    negatives: int = 4
    twin_cosine: float = 0.97  # a "negative" this close is the same tool under another name


@dataclass(frozen=True)
class TrainingSet:
    """Rows of TRAINING_SET, what was left out and why, and the contracts known at the time."""

    rows: list[dict[str, Any]]
    dropped: dict[str, int]
    contracts: dict[str, str]  # "<server_id>::<tool>" -> contract digest


def build_training_set(
    pairs: Sequence[Row],
    contracts: Iterable[Row],
    embed: Embed,
    policy: SetPolicy | None = None,
    held: Collection[tuple[str, str, str]] = (),
    hard: Mapping[str, Sequence[str]] | None = None,
) -> TrainingSet:
    """The set made of accepted `pairs` and the current snapshot rows.

    A pair whose contract is no longer current is left out (`stale_contract`), one whose contract is
    among the `held` (server, tool, contract digest) too, as is one whose prompts showed such a
    contract (`quarantined`), and so is a train
    pair whose tool text also belongs to a test server (`leak`): a copy of a test tool.
    `embed` returns unit vectors of tool texts by the *base* embedder. `hard`: contract digest ->
    digests of the tools that are taken for it, the worst first; they are its first negatives.
    """
    policy = policy or SetPolicy()
    current = {(row["server_id"], row["tool"], row["contract_digest"]): row for row in contracts}
    side = {key: split_of(key[0], test_share=policy.test_share) for key in current}
    texts = {key: tool_text(contract_of(row)) for key, row in current.items()}
    tested = {texts[key] for key in current if side[key] == TEST}
    held_names = {name for _, _, name in held}
    dropped: Counter[str] = Counter()
    rows = []
    for pair in sorted(pairs, key=lambda row: row["pair_id"]):
        key = (pair["server_id"], pair["tool"], pair["contract_digest"])
        if key not in current:
            dropped["stale_contract"] += 1
        elif key in held or not held_names.isdisjoint(json.loads(pair.get("contracts") or "[]")):
            dropped["quarantined"] += 1
        elif side[key] == TRAIN and texts[key] in tested:
            dropped["leak"] += 1
        else:
            rows.append(_row(pair, current[key], texts[key], side[key]))
    _add_negatives(rows, embed, policy, hard or {})
    known = {f"{server}::{tool}": name for server, tool, name in sorted(current)}
    return TrainingSet(rows, dict(sorted(dropped.items())), known)


def manifest(made: TrainingSet, name: str, *, embedder: str, lance_version: int | None) -> dict:
    """What the set was made of, as JSON: counts, servers by split, contracts, digests of rows."""
    rows = made.rows
    by_split = {s: [r for r in rows if r["split"] == s] for s in (TRAIN, TEST)}
    return {
        "training_set": name,
        "rows": {split: len(part) for split, part in by_split.items()},
        "servers": {s: sorted({r["server_id"] for r in part}) for s, part in by_split.items()},
        "tools": {s: len({r["text_digest"] for r in part}) for s, part in by_split.items()},
        "dropped": made.dropped,
        "embedder": embedder,
        "lance_version": lance_version,
        "providers": dict(sorted(Counter(str(row["provider"]) for row in rows).items())),
        "contracts": made.contracts,
        "row_digests": {row["pair_id"]: digest(row) for row in rows},
    }


def save_manifest(home: Path, content: Mapping[str, Any]) -> Path:
    """Keeps a manifest under `<home>/training_sets/`, named by its training set."""
    path = home / "training_sets" / f"{content['training_set']}.json"
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False).encode())
    return path


def load_manifest(home: Path, training_set: str) -> dict[str, Any] | None:
    """The manifest of a training set, or None when it was never kept."""
    path = home / "training_sets" / f"{training_set}.json"
    return json.loads(path.read_bytes()) if path.exists() else None


def set_flaws(rows: Sequence[Row]) -> list[str]:
    """The audit's questions: a server in both splits, an unresolvable negative, an empty split."""
    sides: dict[str, set[str]] = {}
    for row in rows:
        sides.setdefault(row["server_id"], set()).add(row["split"])
    flaws = [f"server {name} is in both splits" for name, s in sides.items() if len(s) > 1]
    for split in (TRAIN, TEST):
        part = [row for row in rows if row["split"] == split]
        if not part:
            flaws.append(f"the {split} split is empty: deploy more servers")
        known = {row["contract_digest"] for row in part}
        for row in part:
            lost = set(json.loads(row["negatives"])) - known
            if lost:
                flaws.append(f"pair {row['pair_id']}: negative {min(lost)} does not resolve")
    return sorted(flaws)


def _row(pair: Row, snapshot: Row, text: str, split: str) -> dict[str, Any]:
    copied = ("pair_id", "server_id", "tool", "contract_digest", "instruction")
    held = pair["arguments"]
    return {
        **{name: pair[name] for name in copied},
        "split": split,
        "kind": pair.get("kind"),
        "contract": json.dumps(contract_of(snapshot), sort_keys=True, ensure_ascii=False),
        "arguments": held if isinstance(held, str) else json.dumps(held, ensure_ascii=False),
        "positive": text,
        "text_digest": text_digest(text),
        "negatives": "[]",
        "provider": pair.get("provider"),
        "license": pair.get("license"),
    }


def _add_negatives(
    rows: list[dict[str, Any]], embed: Embed, policy: SetPolicy, hard: Mapping[str, Sequence[str]]
) -> None:
    """Gives each row the contracts it is confused with, then those nearest to its own; of its own
    split, twins left out."""
    for split in (TRAIN, TEST):
        part = [row for row in rows if row["split"] == split]
        texts = sorted({row["positive"] for row in part})
        if len(texts) < 2:
            continue
        named = {row["positive"]: row["contract_digest"] for row in reversed(part)}
        place = {name: at for at, name in enumerate(map(named.__getitem__, texts))}
        matrix = embed(texts)
        near = matrix @ matrix.T
        near[near > policy.twin_cosine] = -1.0  # the tool itself and its twins
        order = np.argsort(-near, axis=1, kind="stable")[:, : policy.negatives]
        chosen = {}
        for at, text in enumerate(texts):
            confused = [place[name] for name in hard.get(named[text], ()) if name in place]
            worst = dict.fromkeys([*confused, *order[at].tolist()])
            fit = [named[texts[other]] for other in worst if near[at, other] > -1.0]
            chosen[text] = json.dumps(fit[: policy.negatives])
        for row in part:
            row["negatives"] = chosen[row["positive"]]
