"""The tables of synthesis: every pair and every judgement with its receipt.

What belongs here: columns, keys, ids and the reading of contracts out of snapshot rows.
What does not: how a row comes to be (`compose.py`, `judge.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from warehouse.digest import canonical_json, digest
from warehouse.tables import TableSpec

Json = Any

PAIRS = TableSpec(
    name="pairs",
    key=("pair_id",),
    columns={
        "pair_id": pl.String,  # a pure function of tool, contract and plan; no marketplace in it
        "marketplace": pl.String,
        "server_id": pl.String,
        "tool": pl.String,
        "contract_digest": pl.String,
        "recipe_digest": pl.String,
        "plan_digest": pl.String,  # what `wanted` said: another plan makes other pairs
        "index": pl.Int32,
        "kind": pl.String,  # direct, detailed, implicit
        "instruction": pl.String,
        "arguments": pl.String,  # canonical JSON
        "provider": pl.String,  # "offline", or the endpoint's host
        "model": pl.String,
        "caller_model": pl.String,
        "prompt_digest": pl.String,
        "seed": pl.Int64,
        "prompt_tokens": pl.Int64,
        "completion_tokens": pl.Int64,
        "usd": pl.Float64,
        "license": pl.String,
        "status": pl.String,  # ok, failed
        "error_kind": pl.String,
        "hint": pl.String,
        "verdict": pl.String,  # of the rules: accept, reject, unsure
        "flaws": pl.String,  # JSON list of {kind, path, reason, certain}
    },
)

JUDGEMENTS = TableSpec(
    name="judgements",
    key=("pair_id",),
    columns={
        "pair_id": pl.String,
        "marketplace": pl.String,
        "server_id": pl.String,
        "tool": pl.String,
        "contract_digest": pl.String,
        "plan_digest": pl.String,
        "judge": pl.String,  # "offline:rules", or "model:<name>"
        "provider": pl.String,
        "model": pl.String,
        "prompt_digest": pl.String,
        "score": pl.Float64,  # 1 to 10
        "scores": pl.String,  # JSON: one score per criterion
        "verdict": pl.String,  # accept, reject
        "reasons": pl.String,
        "prompt_tokens": pl.Int64,
        "completion_tokens": pl.Int64,
        "usd": pl.Float64,
        "status": pl.String,
        "error_kind": pl.String,
        "hint": pl.String,
    },
)


def contract_of(row: Mapping[str, Json]) -> dict[str, Json]:
    """The contract in a snapshot row, stored as JSON text or given as a mapping."""
    contract = row["contract"]
    return json.loads(contract) if isinstance(contract, str) else dict(contract)


def tool_key(row: Mapping[str, Json]) -> str:
    """`server_id/tool`: the unit in which pairs are planned and made."""
    return f"{row['server_id']}/{row['tool']}"


def text_of(obj: Json) -> str:
    """Canonical JSON as text, for a column."""
    return canonical_json(obj).decode()


def pair_id(server_id: str, tool: str, plan_digest: str, index: int) -> str:
    """`p1:<40 hex>`."""
    return "p1:" + digest([server_id, tool, plan_digest, index])[:40]
