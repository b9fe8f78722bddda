"""Measuring a caller: does it choose the right tool of a few and write the right call?

What belongs here: running a trained caller and the model-free baseline over test rows, per-item
rows, their summary. What does not: the match itself (`assets/contracts/match.py`), promotion.

Definitions. Parsed: the text holds a JSON call. Tool: the called name is the expected one. AST: the
whole call matches the expected one through the tool's schema. Valid: the call names a candidate and
passes that tool's schema. An answer without a call counts 0 in all.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from assets.contracts.match import match_call
from assets.contracts.validate import validate_call
from training.caller import generate, load_caller
from training.champion import UNTRAINED
from training.evaluate import NothingToEvaluate
from training.metrics import bootstrap, paired, share
from training.render import candidates, parse_call, render, tool_schema
from training.slots import baseline_call
from training.tiny import DESCRIPTION_WORDS, TINY
from warehouse.tables import TableSpec

Row = Mapping[str, Any]
Contract = Mapping[str, Any]
BASELINE = UNTRAINED["caller"]

CALLER_EVALUATION = TableSpec(
    name="caller_evaluation",
    key=("model", "pair_id"),
    columns={
        "model": pl.String,  # "baseline:bm25+slots" or the digest that names an adapter
        "pair_id": pl.String,
        "server_id": pl.String,
        "tool": pl.String,
        "kind": pl.String,
        "text_digest": pl.String,
        "candidates": pl.Int64,
        "called": pl.String,  # JSON of the call; null when the answer held none
        "valid": pl.Boolean,
        "tool_ok": pl.Boolean,
        "ast_ok": pl.Boolean,
        "error_kind": pl.String,
        "training_set": pl.String,
    },
)


@dataclass(frozen=True)
class CallerTest:
    """How callers are tested: `limit` bounds the items, chosen evenly over the test rows."""

    candidates: int = 4
    limit: int = 120
    max_new_tokens: int = 96


def evaluate_callers(
    test_rows: Sequence[Row],
    home: Path,
    models: Sequence[str],
    training_set: str,
    test: CallerTest | None = None,
    device: str = "cpu",
) -> list[dict[str, Any]]:
    """Rows of CALLER_EVALUATION for the baseline and each trained caller in `models`.

    Raises NothingToEvaluate without test rows.
    """
    test = test or CallerTest()
    if not test_rows:
        raise NothingToEvaluate("caller evaluation: no accepted pair of a test server")
    items = _spread(test_rows, test.limit)
    pool = {row["contract_digest"]: json.loads(row["contract"]) for row in test_rows}
    shown = [candidates(row, pool, test.candidates) for row in items]
    answers: dict[str, list[dict | None]] = {BASELINE: _baseline(items, shown)}
    for name in models:
        answers[name] = _answers(home, name, items, shown, test, device)
    return [
        _item(label, row, tools, called, training_set)
        for label, calls in answers.items()
        for row, tools, called in zip(items, shown, calls, strict=True)
    ]


def call_summary(rows: Sequence[Row], candidate: str, incumbent: str = BASELINE) -> dict[str, Any]:
    """Parsed, valid, Tool and AST of both with intervals, chance, the candidate's paired gain in
    AST, and the counts of its errors."""
    ours = {row["pair_id"]: row for row in rows if row["model"] == candidate}
    theirs = {row["pair_id"]: row for row in rows if row["model"] == incumbent}
    items = sorted(ours.keys() & theirs.keys())
    if not items:
        raise NothingToEvaluate(f"caller {candidate[:12]}: no item shared with {incumbent[:24]}")
    groups = [ours[item]["text_digest"] for item in items]
    out: dict[str, Any] = {
        "candidate": candidate,
        "incumbent": incumbent,
        "n": len(items),
        "servers": len({ours[item]["server_id"] for item in items}),
        "tools": len(set(groups)),
        "chance": round(sum(1 / ours[item]["candidates"] for item in items) / len(items), 4),
    }
    for measure in ("parsed", "valid", "tool_ok", "ast_ok"):
        a = [_score(ours[item], measure) for item in items]
        b = [_score(theirs[item], measure) for item in items]
        held = {"candidate": bootstrap(a, groups), "incumbent": bootstrap(b, groups)}
        out[measure] = {name: figure.as_dict() for name, figure in held.items()}
        out[f"{measure}_wilson"] = share(int(sum(a)), len(a)).as_dict()
    out["gain"] = paired(
        [float(ours[item]["ast_ok"]) for item in items],
        [float(theirs[item]["ast_ok"]) for item in items],
        groups,
    ).as_dict()
    kinds = Counter(str(ours[item]["error_kind"]) for item in items if not ours[item]["ast_ok"])
    out["errors"] = dict(kinds.most_common())
    return out


def _score(row: Row, measure: str) -> float:
    return float(row["called"] is not None if measure == "parsed" else row[measure])


def _baseline(items: Sequence[Row], shown: Sequence[Sequence[Contract]]) -> list[dict | None]:
    pairs = zip(items, shown, strict=True)
    return [baseline_call(tools, row["instruction"]) for row, tools in pairs]


def _answers(
    home: Path,
    name: str,
    items: Sequence[Row],
    shown: Sequence[Sequence[Contract]],
    test: CallerTest,
    device: str,
) -> list[dict | None]:
    model, tokenizer, made = load_caller(home, name, device)
    words = DESCRIPTION_WORDS if made["base"] == TINY else None
    prompts = [
        render(tokenizer, [tool_schema(tool, words) for tool in tools], row["instruction"])[0]
        for row, tools in zip(items, shown, strict=True)
    ]
    texts = generate(model, tokenizer, prompts, max_new=test.max_new_tokens)
    return [parse_call(text) for text in texts]


def _item(
    label: str, row: Row, tools: Sequence[Contract], called: dict | None, training_set: str
) -> dict[str, Any]:
    gold = next(tool for tool in tools if tool["name"] == row["tool"])
    expected = {"name": row["tool"], "arguments": json.loads(row["arguments"])}
    verdict = _compared(gold, expected, called)
    copied = ("pair_id", "server_id", "tool", "kind", "text_digest")
    return {
        **{name: row[name] for name in copied},
        "model": label,
        "candidates": len(tools),
        "called": json.dumps(called, ensure_ascii=False) if called else None,
        "valid": bool(called) and _valid(called, tools),
        "tool_ok": bool(called) and called["name"] == row["tool"],
        "ast_ok": verdict is None,
        "error_kind": verdict,
        "training_set": training_set,
    }


def _compared(gold: Contract, expected: dict, called: dict | None) -> str | None:
    if called is None:
        return "no_call"
    found = match_call(gold["inputSchema"], expected, called)
    return None if found.match else found.error_kind


def _valid(called: dict, tools: Sequence[Contract]) -> bool:
    named = next((tool for tool in tools if tool["name"] == called["name"]), None)
    return named is not None and not validate_call(dict(named), called["arguments"])


def _spread(rows: Sequence[Row], limit: int) -> list[Row]:
    """At most `limit` rows, evenly over the rows in the order of their ids (which are digests)."""
    ordered = sorted(rows, key=lambda row: row["pair_id"])
    if len(ordered) <= limit:
        return ordered
    return [ordered[i * len(ordered) // limit] for i in range(limit)]
