"""The offline judge: scores a row by the rubric with rules alone, and says so."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from assets.synthesis.tables import ONE_CALL, GoldenCall, dump_text, read_goldens
from assets.synthesis.verify.grading import walk_leaves
from assets.synthesis.verify.pair_checks import PairFinding, find_parroting
from assets.synthesis.verify.rules import verify, verify_row
from assets.synthesis.verify.words import LIKELY, fold_text
from warehouse.json_types import Contract, Json, JsonObject, Row

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
    r"\{\w{0,80}\}|<[a-z_ ]{1,80}>|\[(?:your|insert)[^\]]{0,200}\]|\bundefined\b|\bNone\b|\bnull\b"
)


def judge_by_rules(meta: JsonObject, seed: int) -> Json:
    """The judge's reply for its meta (`role_schemas.py`): reasons, and scores from 1 to 10."""
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
    row, contracts = meta["row"], meta["contracts"]
    instruction, calls = str(row["instruction"]), read_goldens(row)
    findings = _verify_row(row, calls, contracts)
    unstated = [f for f in findings if not f.certain and f.kind in _UNSTATED]
    likely = all(_IMPLIED.match(finding.reason) for finding in unstated)
    for finding in findings:
        most = 2 if finding.certain else 6 if likely and finding in unstated else 5
        reason = f"{finding.kind} at {finding.path or 'the text'}: {finding.reason}"
        yield _HITS.get(finding.kind, "correctness"), most, reason
    arguments = {f"{n}": call.arguments for n, call in enumerate(calls)}
    words = re.findall(r"\w+", fold_text(instruction))
    if (len(words) < 2 and instruction.isascii()) or len(words) > 400:
        yield "clarity", 5, f"{len(words)} words"
    if _LEFTOVER.search(instruction) and not _LEFTOVER.search(dump_text(arguments)):
        yield "realism", 4, "an unfilled placeholder is left in the text"
    if _has_repeats(words, arguments):
        yield "clarity", 5, "words repeat each other"
    echoes = (find_parroting(contracts[c.contract_digest], instruction, c.arguments) for c in calls)
    if why := next(filter(None, echoes), None):
        yield "realism", 5, why


def _verify_row(
    row: Row, calls: Sequence[GoldenCall], contracts: Mapping[str, Contract]
) -> list[PairFinding]:
    digest = row["contract_digest"]
    if row["task"] in ONE_CALL and [call.contract_digest for call in calls] == [digest]:
        texts = row["instruction"], calls[0].arguments
        return list(verify(contracts[digest], *texts, server=calls[0].server_id).findings)
    return list(verify_row(row, contracts).findings)


def _has_repeats(words: list[str], arguments: Json) -> bool:
    """A long word said twice in a row, or three words in a row said twice running. Mere
    repetition is no sign: it refused 26 of 1,224 good requests and caught one flaw."""
    value_words = {
        w for _, v in walk_leaves(arguments) for w in re.findall(r"\w+", fold_text(str(v)))
    }
    if any(a == b and len(a) > 3 and a not in value_words for a, b in pairwise(words)):
        return True
    return any(
        words[at : at + 3] == words[at + 3 : at + 6]
        and not value_words.issuperset(words[at : at + 3])
        for at in range(len(words) - 5)
    )
