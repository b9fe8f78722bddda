"""An item and its answer as one row: what was right, what was wrong, and of which kind.

    parsed      the text could be read: as calls, or as no call where none is right
    valid       there are calls; each names an offered tool and passes its schema
    tool_ok     the called names are the expected ones, each as often
    name_f1, value_f1   over the parameters of all calls (`match.py`); 0 without the right tool
    ast_ok      the calls match the expected ones through the tools' schemas, and no other was made

Where no call is right, tool_ok and ast_ok say that none was made and none was tried; where the
request lacks a value, that it was asked for besides.
error_kind, beside those of `match.py`: prose, no_call, invalid_json (no call was read), extra_call
(every expected call was made, and more), unknown_tool (a name that is not offered),
unwanted_call (a call where none is right), no_question (words that ask for nothing).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.match.match import match_call, match_parallel
from assets.contracts.validate import validate_call
from assets.synthesis.verify.rules import is_question
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_table import ASK_BACK
from training.evaluation.predictor import PredictionAnswer

Call = Mapping[str, Any]
_COUNTED = ("wrong_tool", "too_few_calls", "too_many_calls")
_COPIED = ("split", "task", "candidates", "distractors", "perturbation", "phantom", "seed")


def score_answer(
    item: CallerItem, answer: PredictionAnswer, label: str, training_set: str
) -> dict[str, Any]:
    """The row of CALLER_EVALUATION."""
    row = {
        **{name: getattr(item, name) for name in _COPIED},
        **{name: item.row.get(name) for name in ("pair_id", "server_id", "kind", "text_digest")},
        "item_id": item.item_id,
        "model": label,
        "tool": item.row.get("tool") or "",
        "offered": len(item.tools),
        "shown": len(item.tools) if answer.shown is None else answer.shown,
        "expected": _to_ascii_json(item.expected),
        "failed": answer.error is not None,
        "error_kind": answer.error,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "seconds": None if answer.seconds is None else round(answer.seconds, 4),
        "usd": answer.usd,
        "training_set": training_set,
    }
    if answer.error is not None:
        return row
    calls = list(answer.calls)
    by_name = {tool["name"]: tool for tool in item.tools}
    known_calls = [call for call in calls if call["name"] in by_name]
    valid = [
        call for call in known_calls if not validate_call(by_name[call["name"]], call["arguments"])
    ]
    judge = _score_calls if item.expected else _score_abstention
    return {
        **row,
        "called": _to_ascii_json(calls),
        "calls": len(calls),
        "known_calls": len(known_calls),
        "valid_calls": len(valid),
        "known_name": 0 < len(calls) == len(known_calls),
        "valid": 0 < len(calls) == len(valid),
        **judge(item, answer, by_name),
    }


def _score_abstention(
    item: CallerItem, answer: PredictionAnswer, _: Mapping[str, Any]
) -> dict[str, Any]:
    """The right answer is no call. A call that was begun and broke off was tried."""
    right = not answer.calls and answer.kind != "invalid_json"
    kind = "unwanted_call" if answer.calls else answer.kind
    if item.task == ASK_BACK and right:
        asks_in_prose = answer.kind == "prose" and is_question(answer.text)
        right, kind = asks_in_prose, "no_question" if answer.kind == "prose" else answer.kind
    return {
        "parsed": bool(answer.calls) or right,
        "tool_ok": right,
        "name_f1": float(right),
        "value_f1": float(right),
        "ast_ok": right,
        "error_kind": None if right else kind,
    }


def _score_calls(
    item: CallerItem, answer: PredictionAnswer, by_name: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    if not answer.calls:
        return {
            **dict.fromkeys(("parsed", "tool_ok", "ast_ok"), False),
            **dict.fromkeys(("name_f1", "value_f1"), 0.0),
            "error_kind": answer.kind,
        }
    schemas = {name: tool["inputSchema"] for name, tool in by_name.items()}
    verdicts = _judge_calls(schemas, item.expected, answer.calls)
    kind, all_made = verdicts["error_kind"], verdicts.pop("all_made")
    if all_made and len(answer.calls) > len(item.expected):
        kind = "extra_call"
    elif kind in _COUNTED and any(call["name"] not in by_name for call in answer.calls):
        kind = "unknown_tool"
    return {**verdicts, "parsed": True, "error_kind": kind}


def _judge_calls(
    schemas: Mapping[str, Mapping[str, Any]], expected: Sequence[Call], called: Sequence[Call]
) -> dict[str, Any]:
    """The columns that a comparison of the calls decides."""
    if len(expected) == len(called) == 1:
        schema = schemas.get(expected[0]["name"], {})
        match = match_call(schema, expected[0], called[0])
        verdicts = {"tool_ok": match.tool, "ast_ok": match.match, "all_made": match.match}
        kind, f1s = match.error_kind, (match.name_f1, match.value_f1)
    else:
        many = match_parallel(schemas, expected, called)
        all_made = all(each.match for each in many.calls if each.expected is not None)
        verdicts = {"tool_ok": many.tool, "ast_ok": many.match, "all_made": all_made}
        kind, f1s = many.error_kind, (many.name_f1, many.value_f1)
    figures = {"error_kind": kind, "name_f1": round(f1s[0], 4), "value_f1": round(f1s[1], 4)}
    return {**verdicts, **figures}


def _to_ascii_json(value: Any) -> str:
    """Escaped: half of a surrogate pair in a model's text is no Unicode that a table could hold."""
    return json.dumps(value)
