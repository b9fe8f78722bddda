"""The manifest of a training set: what it was made of, in numbers and digests, as JSON.

training_sets/<name>.json
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.sets.policy import SetPolicy
from training.sets.split import SALTS, SPLITS, TEST_SPLITS, UNSEEN_TIME
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
    """`facts`: training_set, embedder, lance_version, lance_tag, tokens … are kept as they are."""
    splits = [split for split in SPLITS if split != UNSEEN_TIME or policy.cutoff]
    parts = {split: [row for row in rows if row["split"] == split] for split in splits}
    return {
        **facts,
        "rows": {split: len(part) for split, part in parts.items()},
        "tasks": {split: _count_column(part, "task") for split, part in parts.items()},
        "evolved": {split: sum(bool(row["evolved"]) for row in p) for split, p in parts.items()},
        "servers": {s: sorted({row["server_id"] for row in part}) for s, part in parts.items()},
        "tools": {s: len({row["text_digest"] for row in part}) for s, part in parts.items()},
        "empty": [split for split in TEST_SPLITS if split in parts and not parts[split]],
        "policy": {**policy.as_dict(), "salts": SALTS},
        "dropped": dict(sorted(dropped.items())),
        "leaks": {
            why: {"found": len(found), "examples": list(found[:_EXAMPLES])}
            for why, found in sorted(leaks.items())
        },
        "providers": _count_column(rows, "provider"),
        "licences": _count_column(rows, "license"),
        "contracts": dict(contracts),
        "row_digests": {row["pair_id"]: _digest_row(row) for row in rows},
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


def _digest_row(row: Row) -> str:
    """Of one row, as JSON with sorted keys: it needs no canonical numbers, and there are many."""
    return sha256(json.dumps(dict(row), sort_keys=True, ensure_ascii=False).encode())


def _count_column(rows: Sequence[Row], column: str) -> dict[str, int]:
    return dict(sorted(Counter(str(row[column]) for row in rows).items()))
