"""The trained retrievers that the router is measured with, made from other servers only.

offline   offline pairs of training servers' tools that pass every filter
written   the corpus's model-written pairs of training servers, and the offline pairs
metatool  MetaTool queries of half of its tools
"""

import argparse
import csv
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.embed import MiniLM
from benchmarks.bench_pairs import cached, trained
from benchmarks.pairs_arms import arm_rows, candidates
from benchmarks.pairs_data import snapshot, train_rows
from benchmarks.router_data import Pool, corpus_rows, smithery
from benchmarks.shared_data import SHARED
from training.sets.split import TEST, TRAIN, split_of
from warehouse.storage.digest import digest

Row = dict[str, Any]
Embed = Callable[[Sequence[str]], np.ndarray]
ARMS = ("offline", "written", "metatool")
_EPOCHS = {"offline": 2, "written": 3, "metatool": 4}
_OFFLINE = 1000  # pairs
_A_TOOL = 12  # MetaTool queries a tool to learn from


def train(home: Path, arms: Sequence[str] = ARMS, threads: int = 1) -> dict[str, Path]:
    """Arm -> the folder of its adapter. What is done is read, not redone."""
    base = cached(MiniLM(), home)
    found: dict[str, Path] = {}
    for arm in arms:
        began = time.perf_counter()
        rows = _rows(arm, base)
        asked = argparse.Namespace(epochs=_EPOCHS[arm], threads=threads, home=home)
        found[arm] = trained(rows, base, asked)
        card = {"adapter": str(found[arm]), "pairs": len(rows), "epochs": _EPOCHS[arm]}
        card["tools"] = len({row["positive"] for row in rows})
        (home / "arms").mkdir(parents=True, exist_ok=True)
        (home / "arms" / f"{arm}.json").write_text(json.dumps(card))
        print(f"{arm}: {json.dumps(card)} {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return found


def adapter_of(home: Path, arm: str) -> Path | None:
    """The folder of a trained adapter, or None where nothing was trained."""
    card = home / "arms" / f"{arm}.json"
    return Path(json.loads(card.read_bytes())["adapter"]) if card.exists() else None


def metatool_tools() -> dict[str, str]:
    """MetaTool's tools that queries ask for: name -> text."""
    path = SHARED / "metatool" / "plugin_des.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    return {name: tool_text({"name": name, "description": of}) for name, of in described.items()}


def metatool_queries() -> list[tuple[str, str]]:
    """(query, tool) of every MetaTool row."""
    tools = metatool_tools()
    path = SHARED / "metatool" / "all_clean_data.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [(row["Query"], row["Tool"]) for row in rows if row["Tool"] in tools]


def metatool_learnt(tool: str) -> bool:
    """Whether the split by tool puts this tool on the side that is learnt from: half of them."""
    return int(digest(["metatool", tool])[-8:], 16) % 2 == 0


def _rows(arm: str, base: Embed) -> list[Row]:
    if arm == "metatool":
        return _metatool()
    tools = train_rows(snapshot())
    offline = arm_rows("all", candidates(tools, _OFFLINE, base), _OFFLINE)
    return offline if arm == "offline" else [*_written(smithery()), *offline]


def _written(pool: Pool) -> list[Row]:
    """Corpus rows of training servers, but those of a tool whose text a test server also has."""
    texts = {name: tool_text(pool.contracts[name]) for name in pool.ids}
    tested = {texts[name] for name in pool.ids if split_of(name.split("::")[0]) == TEST}
    return [
        _row(
            row["instruction"], texts[row["tool_id"]], pool.digests[row["tool_id"]], row["tool_id"]
        )
        for row in corpus_rows()
        if split_of(row["tool_id"].split("::")[0]) == TRAIN
        and row["tool_id"] in texts
        and texts[row["tool_id"]] not in tested
    ]


def _metatool() -> list[Row]:
    by_tool: dict[str, list[str]] = defaultdict(list)
    for query, tool in metatool_queries():
        if metatool_learnt(tool) and query.strip():
            by_tool[tool].append(query)
    tools, rng = metatool_tools(), random.Random(20)
    return [
        _row(query, tools[tool], digest(tools[tool]), f"metatool::{tool}")
        for tool, said in sorted(by_tool.items())
        for query in rng.sample(said, min(_A_TOOL, len(said)))
    ]


def _row(instruction: str, text: str, name: str, tool_id: str) -> Row:
    server, _, tool = tool_id.rpartition("::")
    return {
        "instruction": instruction, "positive": text, "contract_digest": name, "text_digest": name,
        "server_id": server, "tool": tool,
    }  # fmt: skip
