"""The offline provider: every role's answer without any model, from grammar, schema and rules.

    (role, answer's schema) -> a function of `meta` and seed -> the answer's JSON

What belongs here: which function answers what, under the same interface as an endpoint. Every row
it makes says `offline`; nothing here pretends to be a model.
What does not: the answers themselves (`offline_*.py`), the judge's (`rubric.py`, injected).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from assets.synthesis.edition import offline_edition
from assets.synthesis.offline.acted import act
from assets.synthesis.offline.aside import aside
from assets.synthesis.offline.calls import call
from assets.synthesis.offline.choice import pick
from assets.synthesis.offline.requests import LANGUAGE, STYLES, generate, request_for
from assets.synthesis.offline.several import several
from assets.synthesis.offline.vague import vague
from assets.synthesis.offline.words import worded
from warehouse.effects.llm import Completion, LLMError, Request

__all__ = ["LANGUAGE", "STYLES", "Offline", "call", "generate", "request_for"]

Json = Any
Answer = Callable[[Mapping[str, Json], int], Json]

# By the name of the answer's model: one role may be asked for several kinds of answer.
_BY_SCHEMA: dict[str, Answer] = {
    "Requests": generate,
    "Several": several,
    "Aside": aside,
    "Vague": vague,
    "Worded": worded,
    "Call": call,
    "Acted": act,
}


class Offline:
    """Answers every role from `Request.meta`; `answers.py` has the table of roles and meta.

    `answers` maps a role to its function and goes first: the judge's rules come in that way.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self._answers = dict(answers or {})

    def version(self) -> str:
        return f"offline-{offline_edition()}"

    async def answer(self, request: Request) -> Completion:
        name, schema = request.role.name, request.schema.__name__
        if name in self._answers:
            reply = self._answers[name](request.meta, request.seed)
        elif schema == "Choice":
            reply = pick(request.meta, name)
        elif schema in _BY_SCHEMA:
            reply = _BY_SCHEMA[schema](request.meta, request.seed)
        else:
            expected = f"one of {', '.join(sorted([*_BY_SCHEMA, 'Choice']))}"
            hint = "inject an answer for this role, or give the role a model"
            raise LLMError("no_provider", f"role {name!r} asked for {schema}", expected, hint)
        text = json.dumps(reply, ensure_ascii=False)
        return Completion(text=text, finish="stop", model=self.version())
