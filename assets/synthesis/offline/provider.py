"""The offline provider: every role's answer without any model, from grammar, schema and rules.

(role, answer's schema) -> a function of `meta` and seed -> the answer's JSON
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from assets.contracts.schema.step_budget import TooMuchWork, limited
from assets.synthesis.common.code_version import offline_edition
from assets.synthesis.offline.calls import call
from assets.synthesis.offline.choice import pick
from assets.synthesis.offline.irrelevant import aside
from assets.synthesis.offline.language.rewrites import worded
from assets.synthesis.offline.missing_value import vague
from assets.synthesis.offline.requests import LANGUAGE, STYLES, generate, request_for
from assets.synthesis.offline.several import several
from assets.synthesis.offline.tool_results import act
from warehouse.llm.client import Completion, LLMError, Request

__all__ = ["LANGUAGE", "STYLES", "Offline", "call", "generate", "request_for"]

Json = Any
Answer = Callable[[Mapping[str, Json], int], Json]

# Some 2 s. A contract of 12 members that each require all of it again drew 14,439 values for three
# requests, and took 11 s of everybody's event loop.
_MAX_STEPS = 100_000
# By the name of the answer's model: one role may be asked for several kinds of answer.
_BY_SCHEMA: dict[str, Answer] = {
    "Choice": pick,
    "Requests": generate,
    "Several": several,
    "Aside": aside,
    "Vague": vague,
    "Worded": worded,
    "Call": call,
    "Acted": act,
}


class Offline:
    """Answers every role from `Request.meta`; `role_schemas.py` has the table of roles and meta.

    `answers` maps a role to its function and goes first: the judge's rules come in that way.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self._answers = dict(answers or {})

    def version(self) -> str:
        return f"offline-{offline_edition()}"

    async def answer(self, request: Request) -> Completion:
        try:
            with limited(_MAX_STEPS):
                reply = self._reply(request)
        except TooMuchWork as error:
            found = f"more than {_MAX_STEPS:,} steps for one answer"
            hint = "the contract asks for more than a request can say"
            raise LLMError("bad_request", found, "a contract of usual size", hint) from error
        text = json.dumps(reply, ensure_ascii=False)
        return Completion(text=text, finish="stop", model=self.version())

    def _reply(self, request: Request) -> Json:
        name, schema = request.role.name, request.schema.__name__
        if name in self._answers:
            return self._answers[name](request.meta, request.seed)
        if schema in _BY_SCHEMA:
            return _BY_SCHEMA[schema](request.meta, request.seed)
        expected = f"one of {', '.join(sorted(_BY_SCHEMA))}"
        hint = "inject an answer for this role, or give the role a model"
        raise LLMError("no_provider", f"role {name!r} asked for {schema}", expected, hint)
