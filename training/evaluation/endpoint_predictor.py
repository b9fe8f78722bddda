"""A model behind an OpenAI-compatible endpoint, asked to call tools, each answer paid once by the
ledger. A request without an answer is an `error`, not a wrong answer."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from training.evaluation.predictor import (
    CannotPredict,
    OnDone,
    PredictionAnswer,
    PredictionRequest,
    PredictorKind,
    make_failed_answer,
)
from training.prompts.call_text import normalise_call, parse_calls
from training.prompts.render import NO_CALL, SYSTEM, render_wire_tool
from warehouse.json_types import Contract
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.ledger.ledger import Ledger
from warehouse.llm.chat import ChatClient, ChatTurn, write_wire_name
from warehouse.llm.client import LLMError

if TYPE_CHECKING:
    from warehouse.llm.endpoint import OpenAIEndpoint
    from warehouse.llm.roles import Role

STAGE = "evaluate:caller"


class EndpointPredictor:
    """One role's model. Raises CannotPredict where the role has none."""

    kind: PredictorKind = "endpoint"

    def __init__(
        self,
        role: "Role",
        ledger: Ledger,
        *,
        seed: int = 0,
        endpoint: "OpenAIEndpoint | None" = None,
        stage: str = STAGE,
    ) -> None:
        self.label = f"endpoint:{role.model}"
        self._role, self._ledger, self._seed, self._endpoint = role, ledger, seed, endpoint
        self._stage = stage
        self._open_chat()

    def _open_chat(self) -> ChatClient:
        try:
            return ChatClient(self._role, self._ledger, stage=self._stage, endpoint=self._endpoint)
        except LLMError as error:
            raise CannotPredict(str(error)) from error

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        """Asks for all at once, as many together as the role allows."""
        return asyncio.run(self._ask_all(requests, on_done))

    async def _ask_all(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None
    ) -> list[PredictionAnswer]:
        chat, done = self._open_chat(), 0
        at_once = asyncio.Semaphore(self._role.concurrency)

        async def one(question: PredictionRequest) -> PredictionAnswer:
            nonlocal done
            async with at_once:
                answer = await self._ask_one(chat, question)
            done += 1
            if on_done:
                on_done(done, len(requests))
            return answer

        try:
            return list(await asyncio.gather(*(one(question) for question in requests)))
        finally:
            await chat.aclose()

    def answer_messages(
        self, messages: Sequence[dict[str, Any]], contracts: Sequence[Contract]
    ) -> PredictionAnswer:

        async def ask() -> PredictionAnswer:
            chat = self._open_chat()
            try:
                return await self._say(chat, _map_wire_names(contracts), messages, contracts)
            finally:
                await chat.aclose()

        return asyncio.run(ask())

    async def _ask_one(self, chat: ChatClient, request: PredictionRequest) -> PredictionAnswer:
        names = _map_wire_names(request.tools)
        return await self._say(chat, names, build_messages(request, names), request.tools)

    async def _say(
        self,
        chat: ChatClient,
        names: Mapping[str, str],
        messages: Sequence[dict[str, Any]],
        contracts: Sequence[Contract],
    ) -> PredictionAnswer:
        tools = [render_wire_tool(tool, names) for tool in contracts]
        began = time.perf_counter()
        try:
            turn = await chat.say(messages, tools, seed=self._seed)
        except BudgetExceeded:
            return make_failed_answer("budget_exceeded")
        except LLMError as error:
            return make_failed_answer(error.kind)
        took = None if turn.cached else time.perf_counter() - began
        return _parse_turn(turn, {wire: name for name, wire in names.items()}, took)


def _map_wire_names(contracts: Sequence[Contract]) -> dict[str, str]:
    return {str(tool["name"]): write_wire_name(str(tool["name"])) for tool in contracts}


def build_messages(request: PredictionRequest, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The conversation as endpoints take it; `names`: tool -> its name on the wire."""
    system = f"{SYSTEM} If no tool fits, answer: {NO_CALL}"
    before = request.before or [{"role": "user", "content": request.instruction}]
    messages = [_write_wire_message(message, names) for message in before]
    return [{"role": "system", "content": system}, *messages]


def _write_wire_message(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    result = {name: value for name, value in message.items() if name != "weight"}
    if message.get("tool_calls"):
        result["tool_calls"] = [
            {**call, "function": {
                "name": names.get(call["function"]["name"], call["function"]["name"]),
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            }}
            for call in message["tool_calls"]
        ]  # fmt: skip
    return result


def _parse_turn(
    turn: ChatTurn, names: Mapping[str, str], seconds: float | None
) -> PredictionAnswer:
    """Its tool calls under the tools' own names; what a model wrote as text where it made none."""
    spent: dict[str, Any] = {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.completion_tokens,
        "seconds": seconds,
        "usd": turn.usd,
    }
    if not turn.calls:
        read = parse_calls(turn.text)
        calls = [{**c, "name": names.get(c["name"], c["name"])} for c in read.calls]
        return PredictionAnswer(calls, read.kind, turn.text, **spent)
    own_calls = [normalise_call(names.get(name, name), arguments) for name, arguments in turn.calls]
    calls = [call for call in own_calls if call and isinstance(call["arguments"], Mapping)]
    kind = "call" if calls else "invalid_json"
    return PredictionAnswer(calls, kind, json.dumps(turn.calls), **spent)
