"""Is an answer right? `match_call` against what was meant."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assets.contracts.match.match import match_call
from assets.contracts.validate import validate_call
from benchmarks.repair.arms import Answer, DraftCase
from serving.repair.evidence import ConversationEvidence


@dataclass(frozen=True)
class Judged:
    """An answer, judged; an abstained one is neither valid nor right. invented: a required value
    that is not the one meant and that neither draft nor conversation holds."""

    answer: Answer
    valid: bool
    right: bool
    invented: bool

    @property
    def wrong(self) -> bool:
        return self.valid and not self.right

    @property
    def left(self) -> bool:
        return self.answer.abstained


def judge_answer(asked: DraftCase, answer: Answer) -> Judged:
    """valid: every call fits the tool it names, one of those offered. right: they are those meant,
    in number and order, by `match_call`."""
    if answer.abstained:
        return Judged(answer, False, False, False)
    named = {candidate.name: candidate.contract for candidate in asked.tools.candidates}
    valid = all(name in named and not validate_call(named[name], v) for name, v in answer.calls)
    meant = asked.draft.meant
    right = valid and len(answer.calls) == len(meant)
    right = right and all(
        _is_meant(asked, one, call) for one, call in zip(meant, answer.calls, strict=True)
    )
    invented = valid and not right and any(_is_invented(asked, one) for _, one in answer.calls)
    return Judged(answer, valid, right, invented)


def _is_meant(asked: DraftCase, meant: Any, call: tuple[str, Any]) -> bool:
    expected = {"name": asked.good.name, "arguments": meant}
    return match_call(asked.good.root, expected, {"name": call[0], "arguments": call[1]}).match


def _is_invented(asked: DraftCase, given: dict[str, Any]) -> bool:
    sent = asked.draft.arguments
    text = sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)
    text, evidence = text.replace("\\", ""), ConversationEvidence(asked.conversation)
    return any(
        name in given
        and all(given[name] != meant.get(name) for meant in asked.draft.meant)
        and any(
            str(leaf).replace("\\", "") not in text
            and not evidence.states(leaf, asked.good.declared.get(name, {}), name)
            for leaf in _list_leaves(given[name])
        )
        for name in asked.good.root.get("required") or ()
    )


def _list_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_leaves(item)
    else:
        yield value
