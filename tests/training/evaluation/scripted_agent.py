"""Tasks, a larger model that follows a script, and tools that answer from a function."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.servers.calls.result import CallResult
from extensions.bench.agent_tasks import AgentTask
from tests.serving.calling import CONTRACT, OTHER
from training.evaluation.predictor import PredictionAnswer
from warehouse.llm.chat import ChatTurn

DO, REST = canonicalize_contract(CONTRACT), canonicalize_contract(OTHER)
DIGEST = contract_digest(CONTRACT)
Answer = ChatTurn | Exception


def task(name: str = "p1", **more: Any) -> AgentTask:
    owners = {"do": ("npm:x", DO), "rest": ("npm:x", REST)}
    facts: dict[str, Any] = {
        "task_id": name, "server_id": "npm:x", "tool": "do", "instruction": "Square the 7 for me.",
        "arguments": {"x": 7}, "contract": DO, "tools": [DO, REST], "owners": owners, "group": name,
    }  # fmt: skip
    return AgentTask(**{**facts, **more})


def row(pair_id: str = "p1", **more: Any) -> dict[str, Any]:
    arguments = more.pop("arguments", {"x": 7})
    calls = [{"name": "do", "contract_digest": DIGEST, "arguments": arguments}]
    facts = {
        "pair_id": pair_id, "server_id": "npm:x", "tool": "do", "split": "unseen_server",
        "task": "single", "kind": "direct", "contract_digest": DIGEST, "contract": json.dumps(DO),
        "instruction": "Square the 7 for me.", "arguments": json.dumps(arguments),
        "calls": json.dumps(calls), "negatives": "[]", "text_digest": pair_id,
    }  # fmt: skip
    return facts | more


def says(text: str, tokens: int = 10) -> ChatTurn:
    return ChatTurn(text, (), "stop", "m", tokens, 5, 0.001)


def calls(*made: tuple[str, Any], tokens: int = 10) -> ChatTurn:
    return ChatTurn("", made, "tool_calls", "m", tokens, 5, 0.001)


def small(*made: tuple[str, Any], **more: Any) -> PredictionAnswer:
    found = [{"name": name, "arguments": arguments} for name, arguments in made]
    return PredictionAnswer(found, "call" if found else "prose", prompt_tokens=50, **more)


class Script:
    """A larger model that says what it is given, in order; the last one repeats."""

    def __init__(self, *turns: Answer) -> None:
        self.turns, self.requests = turns, []

    async def say(self, messages: Sequence[Any], tools: Sequence[Any]) -> ChatTurn:
        self.requests.append((json.loads(json.dumps(messages)), tools))
        turn = self.turns[min(len(self.requests), len(self.turns)) - 1]
        if isinstance(turn, Exception):
            raise turn
        return turn


class Tools:
    """Tools that answer by a function of the arguments; keeps what was called."""

    def __init__(self, answer: Callable[[Any], CallResult] | None = None) -> None:
        self.called: list[tuple[str, Any]] = []
        self._answer = answer or (lambda given: text(str(given["x"] ** 2)))

    async def call(
        self, server_id: str, tool: str, contract: Any, arguments: Any, *, timeout_s: float = 60.0
    ) -> CallResult:
        self.called.append((tool, arguments))
        return self._answer(arguments)

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator["Tools"]:
        yield self


def text(content: str, **more: Any) -> CallResult:
    return CallResult("ok", [{"type": "text", "text": content}], **more)
