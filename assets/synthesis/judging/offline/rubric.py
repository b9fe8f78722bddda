"""The offline judge: rules that score a row by the rubric, and say that they are rules."""

import json
import re
from collections.abc import Iterable
from itertools import pairwise

from assets.synthesis.common.tables import ONE_CALL, SINGLE, dump_text
from assets.synthesis.verify.checks.description_echo import find_parroting
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.grounding import LIKELY, fold_text, walk_leaves
from assets.synthesis.verify.verify import verify
from assets.synthesis.verify.verify_row import verify_row
from warehouse.json_types import Json, JsonObject

CRITERIA = ("clarity", "specificity", "relevance", "completeness", "correctness", "realism")
_HITS = {
    "missing_required_value": "completeness", "names_the_tool": "realism",
    "copies_description": "realism", "not_an_instruction": "clarity",
    "may_need_a_tool": "relevance", "no_question": "relevance", "nothing_missing": "completeness",
}  # fmt: skip
_UNSTATED = ("missing_required_value", "ungrounded_value")
# A place or a choice may follow from a text that speaks of it; a path, an address or a key cannot.
_IMPLIED = re.compile(rf"[^/\\@:=_]* is not in the text \({LIKELY}\)$")
_LEFTOVER = re.compile(
    r"\{\w*\}|<[a-z_ ]+>|\[(?:your|insert)[^\]]*\]|\bundefined\b|\bNone\b|\bnull\b"
)


def judge_by_rules(meta: JsonObject, seed: int) -> Json:
    """The judge's reply for the judge's meta (`role_schemas.py`): reasons, a score from 1 to 10 per
    criterion, and the overall score."""
    scores: dict[str, int] = dict.fromkeys(CRITERIA, 9)
    reasons: list[str] = []
    for criterion, most, reason in _find_objections(meta):
        scores[criterion] = min(scores[criterion], most)
        reasons.append(reason)
    low = min(scores.values())
    overall = low if low < 6 else round(sum(scores.values()) / len(scores))
    return {"reasons": "; ".join(reasons) or "no rule objects", **scores, "score": overall}


Objection = tuple[str, int, str]


def _find_objections(meta: JsonObject) -> Iterable[Objection]:
    """(criterion, the most it can still score, why)."""
    instruction = str(meta["instruction"])
    findings = _verify_meta(meta)
    unstated = [f for f in findings if not f.certain and f.kind in _UNSTATED]
    likely = all(_IMPLIED.match(finding.reason) for finding in unstated)
    for finding in findings:
        most = 2 if finding.certain else 6 if likely and finding in unstated else 5
        told = f"{finding.kind} at {finding.path or 'the text'}: {finding.reason}"
        yield _HITS.get(finding.kind, "correctness"), most, told
    yield from _check_words(instruction, _join_arguments(meta))
    if taken := _find_taken_words(meta):
        yield "realism", 5, taken


def _find_taken_words(meta: JsonObject) -> str | None:
    """What a request takes over from the contract of one of its calls."""
    known = {one.get("name"): one for one in [meta["contract"], *meta["contracts"]]}
    for call in meta["calls"]:
        contract = known.get(call["tool"])
        if contract and (taken := find_parroting(contract, meta["instruction"], call["arguments"])):
            return taken
    return None


def _check_words(instruction: str, arguments: Json) -> Iterable[Objection]:
    words = re.findall(r"\w+", fold_text(instruction))
    if (len(words) < 2 and instruction.isascii()) or len(words) > 400:
        yield "clarity", 5, f"{len(words)} words"
    if _LEFTOVER.search(instruction) and not _LEFTOVER.search(dump_text(arguments)):
        yield "realism", 4, "an unfilled placeholder is left in the text"
    if _has_repeats(words, arguments):
        yield "clarity", 5, "words repeat each other"


def _join_arguments(meta: JsonObject) -> dict[str, Json]:
    """The arguments of all calls as one object, for looking values up."""
    return {f"{n}": call["arguments"] for n, call in enumerate(meta["calls"])}


def _verify_meta(meta: JsonObject) -> list[Finding]:
    task, calls = meta.get("task") or SINGLE, meta["calls"]
    if task in ONE_CALL and len(calls) == 1 and calls[0]["tool"] == meta["contract"].get("name"):
        server = str(meta.get("server") or "")
        arguments = calls[0]["arguments"]
        return list(
            verify(meta["contract"], meta["instruction"], arguments, server=server).findings
        )
    return list(verify_row(*_make_row(meta, task)).findings)


def _make_row(meta: JsonObject, task: str) -> tuple[dict[str, Json], dict[str, JsonObject]]:
    """The row that the meta was made from, as far as rules read it; contracts by their place."""
    known = {str(place): one for place, one in enumerate([meta["contract"], *meta["contracts"]])}
    by_name = {one.get("name"): place for place, one in reversed(known.items())}
    server = str(meta.get("server") or "")
    calls = [
        {"server_id": server, "contract_digest": by_name.get(call["tool"], "absent"), **call}
        for call in meta["calls"]
    ]
    row = {
        "task": task,
        "contract_digest": "0",
        "instruction": meta["instruction"],
        "messages": json.dumps(meta["messages"]),
        "calls": json.dumps(calls),
        "offered": json.dumps(sorted(known)),
    }
    return row, known


def _has_repeats(words: list[str], arguments: Json) -> bool:
    """A long word said twice in a row, or three words in a row said twice running. Mere
    repetition is no sign: it refused 26 of 1,224 good requests and caught one flaw."""
    held = {w for _, v in walk_leaves(arguments, {}) for w in re.findall(r"\w+", fold_text(str(v)))}
    if any(a == b and len(a) > 3 and a not in held for a, b in pairwise(words)):
        return True
    return any(
        words[at : at + 3] == words[at + 3 : at + 6] and not held.issuperset(words[at : at + 3])
        for at in range(len(words) - 5)
    )
