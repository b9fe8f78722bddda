"""The offline provider: dispatches each role's request to the function that answers it.

(role, answer's schema) -> a function of `meta` and seed -> the answer's JSON
"""

import json
from collections.abc import Callable, Mapping

from pydantic import BaseModel

from assets.contracts.schema_shapes import TooMuchWork, limit_steps
from assets.synthesis.offline.choice import answer_choice
from assets.synthesis.offline.no_call import answer_aside, answer_vague
from assets.synthesis.offline.replies import answer_acted, answer_call
from assets.synthesis.offline.requests import answer_requests, answer_several, answer_worded
from assets.synthesis.policy import get_offline_version
from assets.synthesis.role_schemas import (
    CallArguments,
    IncompleteRequest,
    MultiCallRequest,
    RequestDrafts,
    RewrittenRequest,
    ToolChoice,
    ToollessRequest,
    ToolReply,
)
from warehouse.json_types import Json, JsonObject
from warehouse.llm.client import LLMError, ModelCompletion, ModelRequest

Answer = Callable[[JsonObject, int], Json]

# Some 2 s. A contract of 12 members that each require all of it again drew 14,439 values for three
# requests, and took 11 s of everybody's event loop.
_MAX_STEPS = 100_000
# By the answer's model: one role may be asked for several kinds of answer.
_BY_SCHEMA: dict[type[BaseModel], Answer] = {
    ToolChoice: answer_choice,
    RequestDrafts: answer_requests,
    MultiCallRequest: answer_several,
    ToollessRequest: answer_aside,
    IncompleteRequest: answer_vague,
    RewrittenRequest: answer_worded,
    CallArguments: answer_call,
    ToolReply: answer_acted,
}


class OfflineProvider:
    """Answers every role from the request's `meta`. answers: functions by role that go first."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self._answers = dict(answers or {})

    def version(self) -> str:
        return f"offline-{get_offline_version()}"

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        try:
            with limit_steps(_MAX_STEPS):
                reply = self._make_reply(request)
        except TooMuchWork as error:
            problem = f"more than {_MAX_STEPS:,} steps for one answer"
            hint = "the contract asks for more than a request can say"
            raise LLMError("bad_request", problem, "a contract of usual size", hint) from error
        text = json.dumps(reply, ensure_ascii=False)
        return ModelCompletion(text=text, finish="stop", model=self.version())

    def _make_reply(self, request: ModelRequest) -> Json:
        name, schema = request.role.name, request.schema
        answer = self._answers.get(name) or _BY_SCHEMA.get(schema)
        if answer is None:
            expected = f"one of {', '.join(sorted(kind.__name__ for kind in _BY_SCHEMA))}"
            hint = "inject an answer for this role, or give the role a model"
            problem = f"role {name!r} asked for {schema.__name__}"
            raise LLMError("no_provider", problem, expected, hint)
        return answer(request.meta, request.seed)
