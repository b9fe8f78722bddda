"""API-Bank level 1: one case an API turn, the whole pool, the user's raw words."""

import argparse
import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from benchmarks import router_peers as peers
from benchmarks.router_data import Pool, plain_pool
from benchmarks.router_index import encoder_of, router_over
from benchmarks.router_tokens import Counter
from benchmarks.shared_data import SHARED
from serving.router import Ask
from training.evaluation.metrics import Figure, bootstrap

PUBLISHED = "single-turn 71.63, multi-turn 65.05 by text-embedding-3-large (MCP-Zero)"


@dataclass(frozen=True)
class Case:
    """One API turn: what the user said since the turn before it, and what was said earlier."""

    text: str
    earlier: str
    gold: str
    dialogue: str
    multi: bool


def api_bank(asked: argparse.Namespace) -> dict[str, Any]:
    """{rows: {method | turn: accuracy}, tokens}; a request written by a model is not run here."""
    pool, cases = _api_bank_pool(), list(api_bank_cases())
    cases = [case for case in cases if case.gold in pool.contracts]
    texts = [case.text for case in cases]
    encoder = encoder_of(asked.home, None, asked.threads)
    listed = [tool_text(of) for of in pool.contracts.values()]
    deep = peers.dense(encoder.embed(texts), encoder.embed(listed), 1)
    found = {"cosine": [pool.ids[row[0]] for row in deep]}
    router = router_over(asked.home, pool, None, asked.threads)
    contexts = {"ours": [None] * len(cases), "ours, with what was said earlier": _earlier(cases)}
    for name, context in contexts.items():
        asks = [Ask(query=t, k=1, context=c) for t, c in zip(texts, context, strict=True)]
        found[name] = [answer.hits[0].tool_id for answer in router.find_many(asks)]
    counter = Counter()
    rows = {
        f"{name} | {turn}-turn": _accuracy(ids, cases, turn == "multi").as_dict()
        for name, ids in found.items()
        for turn in ("single", "multi")
    }
    sizes = {name: counter.injected(of) for name, of in pool.contracts.items()}
    tokens = float(np.mean([sizes[name] for name in found["ours"]]))
    return {"rows": rows, "tools": len(pool.ids), "published": PUBLISHED,
            "tokens_injected": round(tokens, 1), "tokens_of_pool": sum(sizes.values()),
            "active_requests": "not run: no language model is configured"}  # fmt: skip


def api_bank_cases() -> Iterator[Case]:
    """One case an API turn of level 1. A dialogue that asks for one API is single-turn, one that
    asks for several is multi-turn; turns that fetch a token are left out: nobody asks for those."""
    folder = SHARED / "api-bank" / "lv1-lv2-samples" / "level-1-given-desc"
    for path in sorted(folder.glob("*.jsonl")):
        turns = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        apis = [t for t in turns if t["role"] == "API" and t["api_name"] != "GetUserToken"]
        earlier: list[str] = []
        said: list[str] = []
        fresh = False
        for turn in turns:
            if turn["role"] == "User":
                earlier, said = ([*earlier, *said], []) if fresh else (earlier, said)
                said, fresh = [*said, turn["text"]], False
            elif turn["role"] == "API" and said:
                fresh = True
                if turn["api_name"] != "GetUserToken":
                    gold = f"{turn['api_name']}::{turn['api_name']}"
                    yield Case("\n".join(said), "\n".join(earlier), gold, path.stem, len(apis) > 1)


def _earlier(cases: Sequence[Case]) -> list[str | None]:
    return [case.earlier or None for case in cases]


def _accuracy(ids: Sequence[str], cases: Sequence[Case], multi: bool) -> Figure:
    at = [place for place, case in enumerate(cases) if case.multi == multi]
    right = [float(ids[place] == cases[place].gold) for place in at]
    return bootstrap(right, [cases[place].dialogue for place in at])


def _api_bank_pool() -> Pool:
    with (SHARED / "api-bank" / "data" / "all_apis.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["API名称"]]
    return plain_pool({row["类名"]: _told(row) for row in rows})


def _told(row: dict[str, str]) -> str:
    told = row["api_info"].partition("description =")[2].partition("input_parameters")[0]
    return told.strip(" \"'\n")
