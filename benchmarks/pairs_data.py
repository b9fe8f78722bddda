"""Tools to learn from and queries to be tested on, read from the shared data."""

import csv
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, contract, contract_digest, tool_text
from benchmarks.shared_data import SHARED
from training.sets.split import TEST, TRAIN, split_of

DATA = SHARED
_SEED = 20


@dataclass(frozen=True)
class Suite:
    """Queries, the text of the right tool of each, the tool as resampling group, and the pool."""

    name: str
    queries: list[str]
    gold: list[str]
    groups: list[str]
    pool: list[str]
    about: str


def snapshot() -> list[dict[str, Any]]:
    """The tools that a live Smithery server listed with full schemas, as snapshot rows."""
    rows = []
    for line in (DATA / "smithery" / "servers.jsonl").read_text(encoding="utf-8").splitlines():
        server = json.loads(line)
        if server.get("tools_source") != "live":
            continue
        for tool in server["tools"]:
            try:
                of = contract(tool)
            except ContractError:
                continue
            rows.append(
                {
                    "server_id": server["qualified_name"],
                    "tool": of["name"],
                    "contract": of,
                    "contract_digest": contract_digest(tool),
                    "text": tool_text(of),
                }
            )
    return rows


def train_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools of training servers, one per text, none of whose text a test server also has; in an
    order that is random and always the same."""
    tested = {row["text"] for row in rows if split_of(row["server_id"]) == TEST}
    kept = {
        row["text"]: row
        for row in rows
        if split_of(row["server_id"]) == TRAIN and row["text"] not in tested
    }
    return random.Random(_SEED).sample(sorted(kept.values(), key=_name), len(kept))


def corpus(rows: Sequence[dict[str, Any]]) -> Suite:
    """Good rows of the corpus of test servers. Pool: every tool of every test server, and the
    corpus's tools of training servers too."""
    text = {f"{row['server_id']}::{row['tool']}": row["text"] for row in rows}
    said = [json.loads(line) for path in sorted((DATA / "corpus").glob("pairs_A*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()]  # fmt: skip
    asked = [
        row for row in said
        if row["kind"] != "flawed" and split_of(_server(row)) == TEST and row["tool_id"] in text
    ]  # fmt: skip
    pool = {row["text"] for row in rows if split_of(row["server_id"]) == TEST}
    pool |= {text[row["tool_id"]] for row in said if row["tool_id"] in text}
    gold = [text[row["tool_id"]] for row in asked]
    about = "corpus (model-written) queries of test servers"
    return Suite("corpus", [r["instruction"] for r in asked], gold, gold, sorted(pool), about)


def metatool(n: int) -> Suite:
    """`n` MetaTool queries drawn with a fixed seed, over its 199 tools."""
    folder = DATA / "metatool"
    described = json.loads((folder / "plugin_des.json").read_text(encoding="utf-8"))
    text = {name: tool_text({"name": name, "description": of}) for name, of in described.items()}
    with (folder / "all_clean_data.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["Tool"] in text and row["Query"].strip()]
    drawn = random.Random(_SEED).sample(rows, min(n, len(rows)))
    gold = [text[row["Tool"]] for row in drawn]
    about = f"{n} of {len(rows)} MetaTool queries"
    pool = sorted(set(text.values()))
    return Suite("metatool", [row["Query"] for row in drawn], gold, gold, pool, about)


def api_bank() -> Suite:
    """API-Bank level 1: each API turn, asked for by what the user said since the turn before it.
    Turns that fetch a token are left out: nobody asks for those."""
    root = DATA / "api-bank"
    with (root / "data" / "all_apis.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    text = {row["API名称"]: _api_text(row) for row in rows if row["API名称"]}
    by_class = {row["类名"]: text[row["API名称"]] for row in rows if row["API名称"]}
    queries, gold = [], []
    folder = root / "lv1-lv2-samples" / "level-1-given-desc"
    for path in sorted(folder.glob("*.jsonl")):
        for query, api in _turns(path):
            if api in by_class and api != "GetUserToken":
                queries.append(query)
                gold.append(by_class[api])
    pool = sorted(set(by_class.values()))
    return Suite(
        "api-bank", queries, gold, gold, pool, "API-Bank level 1, the user's words per API turn"
    )


def _turns(path: Path) -> Iterator[tuple[str, str]]:
    said: list[str] = []
    fresh = True
    for line in path.read_text(encoding="utf-8").splitlines():
        turn = json.loads(line)
        if turn["role"] == "User":
            said = [turn["text"]] if fresh else [*said, turn["text"]]
            fresh = False
        elif turn["role"] == "API" and said:
            yield "\n".join(said), turn["api_name"]
            fresh = True


def _api_text(row: dict[str, str]) -> str:
    told = row["api_info"].partition("description =")[2].partition("input_parameters")[0]
    return tool_text({"name": row["类名"], "description": told.strip(" \"'\n")})


def _server(row: dict[str, Any]) -> str:
    return row["tool_id"].split("::")[0]


def _name(row: dict[str, Any]) -> tuple[str, str]:
    return row["server_id"], row["tool"]
