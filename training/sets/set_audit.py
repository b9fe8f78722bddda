"""The manifest of a training set: what it was made of, in numbers and digests, as JSON.

training_sets/<name>.json
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.prompts.render import read_json_list
from training.sets.split import (
    SALTS,
    SEEN_TOOL,
    SPLITS,
    TEST_SPLITS,
    TRAIN,
    UNSEEN_SERVER,
    UNSEEN_TOOL,
    Embed,
    SetPolicy,
    find_nearest_texts,
    normalise_request,
)
from warehouse.json_types import Row
from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically

_EXAMPLES = 20  # leaks that are told in full; all are counted


def build_manifest(
    rows: Sequence[Row],
    policy: SetPolicy,
    *,
    dropped: Mapping[str, int],
    leaks: Mapping[str, Sequence[Mapping[str, Any]]],
    contracts: Mapping[str, str],
    **facts: Any,
) -> dict[str, Any]:
    """`facts`: training_set, embedder, lance_version, lance_tag … are kept as they are."""
    texts = {row["pair_id"]: json.dumps(dict(row), sort_keys=True) for row in rows}
    parts = {split: [row for row in rows if row["split"] == split] for split in SPLITS}
    return {
        **facts,
        "rows": {split: len(part) for split, part in parts.items()},
        "tasks": {split: _count_column(part, "task") for split, part in parts.items()},
        "evolved": {split: sum(bool(row["evolved"]) for row in p) for split, p in parts.items()},
        "servers": {s: sorted({row["server_id"] for row in part}) for s, part in parts.items()},
        "tools": {s: len({row["text_digest"] for row in part}) for s, part in parts.items()},
        "empty": [split for split in TEST_SPLITS if split in parts and not parts[split]],
        "policy": {**asdict(policy), "salts": SALTS},
        "dropped": dict(sorted(dropped.items())),
        "leaks": {
            why: {"found": len(found), "examples": list(found[:_EXAMPLES])}
            for why, found in sorted(leaks.items())
        },
        "providers": _count_column(rows, "provider"),
        "licences": _count_column(rows, "license"),
        "contracts": dict(contracts),
        "row_digests": {name: sha256(text.encode()) for name, text in texts.items()},
    }


def save_manifest(home: Path, content: Mapping[str, Any]) -> Path:
    path = home / "training_sets" / f"{content['training_set']}.json"
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False).encode())
    return path


def load_manifest(home: Path, training_set: str) -> dict[str, Any] | None:
    """The manifest of a training set, or None when it was never kept."""
    path = home / "training_sets" / f"{training_set}.json"
    return json.loads(path.read_bytes()) if path.exists() else None


def _count_column(rows: Sequence[Row], column: str) -> dict[str, int]:
    return dict(sorted(Counter(str(row[column]) for row in rows).items()))


_STRICT = (UNSEEN_TOOL, UNSEEN_SERVER)


def set_flaws(
    rows: Sequence[Row],
    pool: Mapping[str, Mapping[str, Any]],
    *,
    embed: Embed | None = None,
    embed_requests: Embed | None = None,
    policy: SetPolicy | None = None,
    same: Mapping[str, Collection[str]] | None = None,
) -> list[str]:
    """Every flaw as a sentence: an empty split, a single class, equal or near servers, tools or
    requests on both sides, a contract out of place. Without `embed` near is equal in words."""
    policy = policy or SetPolicy()
    flaws = [
        *_find_empty_splits(rows),
        *_find_split_overlaps(rows, same or {}),
        *_find_untrained_tools(rows),
        *_find_unresolved_contracts(rows, pool),
    ]
    flaws += _find_text_leaks(rows, embed, policy)
    flaws += _find_request_leaks(rows, embed_requests or embed, policy)
    return sorted(set(flaws))


def _find_empty_splits(rows: Sequence[Row]) -> Iterator[str]:
    learnt = [row for row in rows if row["split"] == TRAIN]
    called = [row for row in learnt if row["positive"] is not None]
    if not learnt:
        yield "the train split is empty: deploy more servers, or see why their pairs are rejected"
    elif len({row["text_digest"] for row in called}) < 2:
        tools = sorted({f"{row['server_id']}/{row['tool']}" for row in called}) or ["none"]
        yield (
            f"one-class data: {len(learnt)} train pairs call {tools[0]} alone; expected two tools"
            " or more, since there is nothing to choose between: deploy more servers"
        )
    elif len({row["server_id"] for row in called}) < 2:
        yield (
            f"one-class data: all {len(called)} train pairs are of {called[0]['server_id']};"
            " expected two train servers or more: deploy more servers"
        )
    if not any(row["split"] == UNSEEN_SERVER for row in rows):
        yield (
            "the unseen_server split is empty, so that nothing could be measured: deploy more"
            " servers (three of ten are test servers by the hash of their id)"
        )


def _find_split_overlaps(rows: Sequence[Row], same: Mapping[str, Collection[str]]) -> Iterator[str]:
    servers, tools = defaultdict(set), defaultdict(set)
    for row in rows:
        servers[min(same.get(row["server_id"], (row["server_id"],)))].add(row["split"])
        if row["positive"] is not None:
            tools[row["server_id"], row["tool"]].add(row["split"])
    for name, splits in servers.items():
        if len(splits) > 1 and UNSEEN_SERVER in splits:
            yield f"server {name} is in both sides: {', '.join(sorted(splits))}"
    for (server, tool), splits in tools.items():
        if len(splits) > 1 and splits != {TRAIN, SEEN_TOOL}:
            yield f"tool {server}/{tool} is in both sides: {', '.join(sorted(splits))}"


def _find_untrained_tools(rows: Sequence[Row]) -> Iterator[str]:
    trained = {
        name for row in rows if row["split"] == TRAIN for name in _list_called_contracts(row)
    }
    for row in rows:
        lost = set(_list_called_contracts(row)) - trained if row["split"] == SEEN_TOOL else ()
        if lost:
            yield f"pair {row['pair_id']} of seen_tool: no training pair calls {min(lost)}"


def _find_unresolved_contracts(
    rows: Sequence[Row], pool: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    whole, learnt = set(pool), {name for name, one in pool.items() if one["split"] == TRAIN}
    for row in rows:
        may = learnt if row["split"] == TRAIN else whole
        for what in ("negatives", "offered", "calls"):
            lost = (
                set(_list_called_contracts(row) if what == "calls" else read_json_list(row[what]))
                - may
            )
            if lost:
                yield f"pair {row['pair_id']}: its {what} name {min(lost)}, which does not resolve"


def _find_text_leaks(rows: Sequence[Row], embed: Embed | None, policy: SetPolicy) -> Iterator[str]:
    called = [row for row in rows if row["positive"] is not None]
    tested = {row["positive"]: row for row in called if row["split"] in _STRICT}
    learnt = {row["positive"]: row for row in called if row["split"] in (TRAIN, SEEN_TOOL)}
    for text in sorted(learnt.keys() & tested.keys()):
        yield f"leak_text: {_describe_both_pairs(learnt[text], tested[text])} have one text"
    if embed is not None:
        for text, other in find_nearest_texts(
            list(learnt), list(tested), embed, policy.twin_cosine
        ).items():
            yield f"leak_twin: {_describe_both_pairs(learnt[text], tested[other])} are one tool"


def _find_request_leaks(
    rows: Sequence[Row], embed: Embed | None, policy: SetPolicy
) -> Iterator[str]:
    tested = {row["instruction"]: row for row in rows if row["split"] != TRAIN}
    learnt = {row["instruction"]: row for row in rows if row["split"] == TRAIN}
    worded = {normalise_request(text): text for text in tested}
    for text, row in learnt.items():
        if (request := normalise_request(text)) in worded:
            yield (
                f"leak_instruction: {_describe_both_pairs(row, tested[worded[request]])} ask"
                " the same"
            )
    if embed is not None:
        for text, other in find_nearest_texts(
            list(learnt), list(tested), embed, policy.near_cosine
        ).items():
            yield (
                f"leak_instruction: {_describe_both_pairs(learnt[text], tested[other])} ask"
                f" nearly the same"
            )


def _describe_both_pairs(one: Row, other: Row) -> str:
    return " and ".join(
        f"pair {row['pair_id']} ({row['server_id']}/{row['tool']}, {row['split']})"
        for row in (one, other)
    )


def _list_called_contracts(row: Row) -> list[str]:
    return [call["contract_digest"] for call in read_json_list(row["calls"])]
