"""The pool, the queries and what counts as a hit, for each benchmark of the router."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.contracts.tool_id import ToolId
from assets.synthesis.judging.adhoc.files import read_tools
from assets.synthesis.verify.checks.languages import find_other_language
from benchmarks.shared_data import SHARED
from serving.adhoc_source import read_source
from training.sets.split import TEST, split_of

Row = dict[str, Any]
SLICES = ("all", "direct", "detailed", "implicit", "non-English")
# Words that English can hardly do without and that its neighbours here do not have.
_SMALL = "the of and to for with that this my you what please can it from are"


@dataclass(frozen=True)
class Query:
    """One held-out instruction and the tool it was written for."""

    tool_id: str
    kind: str
    text: str
    non_english: bool

    @property
    def server(self) -> str:
        return ToolId.parse(self.tool_id).server_id

    @property
    def tested(self) -> bool:
        """Whether its server is one that nothing was ever fitted on."""
        return split_of(self.server) == TEST

    def within(self, part: str) -> bool:
        return part in ("all", self.kind) or (part == "non-English" and self.non_english)


@dataclass(frozen=True)
class Pool:
    """Tools of servers, as listed: contracts by id, and the servers' own words."""

    contracts: dict[str, Row]  # tool id -> canonical contract
    digests: dict[str, str]
    listed: dict[str, Row]  # tool id -> the tool as the file lists it
    servers: dict[str, dict[str, str]]  # server id -> name, description, summary

    @cached_property
    def ids(self) -> list[str]:
        return list(self.contracts)

    @cached_property
    def twins(self) -> dict[str, str]:
        """Tool id -> the key it shares with its twins: one name but for case and separators, and
        one description (its first 200 characters), as `score/router.py` has it."""
        return {name: _twin_key(tool) for name, tool in self.listed.items()}


def read_smithery(path: Path | None = None) -> Pool:
    """Every tool of the shared Smithery servers, those without a live listing too."""
    path = path or SHARED / "smithery" / "servers.jsonl"
    tools = read_tools(path)
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    listed = {
        str(ToolId(server["qualified_name"], tool["name"])): tool
        for server in records
        for tool in server["tools"]
    }
    about = {name: dict(of) for name, of in read_source(path)[0].servers.items()}
    return Pool(tools.by_id, tools.digests, listed, about)


def make_plain_pool(described: dict[str, str]) -> Pool:
    """Tools that have no server: each is the one tool of a server of its own name."""
    listed = {
        str(ToolId(name, name)): {
            "name": name, "description": about, "inputSchema": {"type": "object"},
        }
        for name, about in described.items()
    }  # fmt: skip
    return Pool(
        {name: canonicalize_contract(tool) for name, tool in listed.items()},
        {name: contract_digest(tool) for name, tool in listed.items()},
        listed,
        {name: {"name": name, "description": "", "summary": ""} for name in described},
    )


def read_queries(pool: Pool) -> list[Query]:
    """The good rows of the corpus whose tool is in the pool, in the order of the files."""
    return [
        Query(row["tool_id"], row["kind"], row["instruction"], not is_english(row["instruction"]))
        for row in read_corpus()
        if row["tool_id"] in pool.contracts
    ]


def read_corpus(shared: Path = SHARED) -> list[Row]:
    """The good rows of the corpus: written by a language model, not by people."""
    return [
        row
        for path in sorted((shared / "corpus").glob("pairs_A*.jsonl"))
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row["kind"] != "flawed"
    ]


def is_english(text: str) -> bool:
    """False for a text plainly in another language: by script and small words, or by a letter
    that English lacks where not one small English word stands beside it."""
    if find_other_language(text, "en"):
        return False
    foreign = any(char.isalpha() and ord(char) > 0x7F for char in text)
    return not foreign or bool(set(_SMALL.split()) & set(re.findall(r"[a-z']+", text.lower())))


def hit_at(hits: Sequence[str], gold: str, twins: Mapping[str, str], *, none: int = 999) -> int:
    """The place of the gold tool, or of a twin of it, among tool ids in order; else `none`."""
    key = twins[gold]
    return next(
        (at for at, hit in enumerate(hits) if hit == gold or twins.get(hit) == key), none
    )  # fmt: skip


def _twin_key(tool: Mapping[str, Any]) -> str:
    name = re.sub(r"[^a-z0-9]", "", tool["name"].lower())
    return f"{name}\n{(tool.get('description') or '').strip()[:200]}"
