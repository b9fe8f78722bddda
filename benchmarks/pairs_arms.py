"""Pairs of each arm: all filters, each filter left out, and a naive template.

Every arm has the same number of pairs, taken in one frozen order from the same candidates, so an
arm differs by what its filters let through and not by size.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import SINGLE, pair_id, text_of
from assets.synthesis.judging.offline.rubric import rule_judgement
from assets.synthesis.offline.choice import choose
from assets.synthesis.offline.requests import STYLES, generate
from assets.synthesis.verify.filters import filtered
from assets.synthesis.verify.verify import verify
from assets.vectors.lexicon import words_of
from assets.vectors.near import Near

Row = dict[str, Any]
ARMS = ("all", "no_rules", "no_echo", "no_twins", "no_invocation", "no_judge", "template")
_LEFT_OUT = {
    "no_rules": "rules", "no_echo": "echo", "no_twins": "twin", "no_invocation": "invocation",
    "no_judge": "judge",
}  # fmt: skip
_SPARE = 1.5  # candidates per pair wanted; filters drop fewer than a third


def candidates(
    tools: Sequence[Row], pairs: int, embed: Callable[[Sequence[str]], np.ndarray]
) -> list[Row]:
    """Offline pairs with what each filter says of them: `dropped_by`, a list of filters."""
    policy = SynthesisPolicy()
    shown = tools[: max(2, round(pairs * _SPARE / len(STYLES)))]
    rows = [row for tool in shown for row in _rows(tool, policy.seed)]
    contracts = {tool["contract_digest"]: tool["contract"] for tool in shown}
    near = Near(shown, embed([tool["text"] for tool in shown]))
    rivals = {tool["contract_digest"]: near(tool)[: policy.distractors] for tool in shown}
    # Verdicts are left open first, so that the filters over the whole set see every row.
    marked = filtered([{**row, "verdict": "accept"} for row in rows], contracts, embed, policy)
    for row, mark in zip(rows, marked, strict=True):
        of = contracts[row["contract_digest"]]
        row["dropped_by"] = _objectors(row, mark, of, rivals[row["contract_digest"]], policy)
    return rows


def arm_rows(arm: str, made: Sequence[Row], pairs: int) -> list[Row]:
    """The first `pairs` candidates that the arm's filters keep."""
    if arm == "template":
        return [{**row, "instruction": _template(row)} for row in made[:pairs]]
    ignored = {_LEFT_OUT.get(arm)}
    return [row for row in made if set(row["dropped_by"]) <= ignored][:pairs]


def dropped(made: Sequence[Row]) -> dict[str, int]:
    """Filter -> how many candidates it objects to."""
    return dict(Counter(name for row in made for name in row["dropped_by"]).most_common())


def _rows(tool: Row, seed: int) -> list[Row]:
    requests = generate({"contract": tool["contract"], "count": len(STYLES)}, seed)["requests"]
    return [_row(tool, index, request) for index, request in enumerate(requests)]


def _row(tool: Row, index: int, request: Row) -> Row:
    call = {name: tool[name] for name in ("server_id", "tool", "contract_digest")}
    row = {
        **call,
        "positive": tool["text"],
        "text_digest": tool["contract_digest"],
        "task": SINGLE,
        "index": index,
        "kind": request["kind"],
        "instruction": request["instruction"],
        "arguments": request["values"],
        "calls": text_of([{**call, "arguments": request["values"]}]),
        "messages": "[]",
        "status": "ok",
        "flaws": "[]",
        "contract": tool["contract"],
    }
    return {**row, "pair_id": pair_id(row)}


def _objectors(
    row: Row, mark: Row, contract: Row, rivals: Sequence[Mapping[str, Any]], policy: SynthesisPolicy
) -> list[str]:
    verdict = verify(contract, row["instruction"], row["arguments"], server=row["server_id"])
    found = ["rules"] if verdict.verdict == "reject" else []
    if mark["cosine"] is not None and mark["cosine"] > policy.copies_above:
        found.append("echo")
    if mark["twin_of"]:
        found.append("twin")
    shown = [contract, *(rival["contract"] for rival in rivals)]
    picks = [choose(shown, row["instruction"], how)[0] for how in ("words", "letters")]
    if 1 not in picks and any(picks):
        found.append("invocation")
    if rule_judgement(_meta(row, contract), 0)["score"] < policy.threshold:
        found.append("judge")
    return found


def _meta(row: Row, contract: Row) -> Row:
    call = {"tool": row["tool"], "arguments": row["arguments"]}
    return {
        "contract": contract, "contracts": [contract], "task": SINGLE, "calls": [call],
        "instruction": row["instruction"], "arguments": row["arguments"],
        "messages": [{"role": "user", "content": row["instruction"]}], "server": row["server_id"],
        "row": row,
    }  # fmt: skip


def _template(row: Row) -> str:
    """What a script without any grammar writes: the name's words and the arguments."""
    name = " ".join(words_of(row["tool"]))
    told = ", ".join(f"{key} {json.dumps(value)}" for key, value in row["arguments"].items())
    opening = ("Please {n}", "Can you {n}", "I want to {n}")[row["index"] % 3]
    return f"{opening.replace('{n}', name)}{' with ' + told if told else ''}"
