"""One turn of a conversation with tools, through the ledger: asked once, paid once.

messages + tools -> key -> look up in the ledger -> send -> text and calls as they were written
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.ledger.ledger import Ledger
from warehouse.llm.endpoint import OpenAIEndpoint, read_choice
from warehouse.llm.paid_calls import PaidCalls, PaidQuestion
from warehouse.llm.roles import OFFLINE, OPENAI, LLMError, Role, compute_price
from warehouse.storage.digest import sha256

Message = Mapping[str, Any]
_MOST_CALLS = 64
_LONGEST_NAME = 64
_DIGITS = 16  # of the digest: with half as many, a name that collides is found in a minute
_SOUND = re.compile(rf"[a-zA-Z0-9_-]{{1,{_LONGEST_NAME}}}")
_DIGESTED = re.compile(rf"_[0-9a-f]{{{_DIGITS}}}\Z")


@dataclass(frozen=True)
class ChatTurn:
    """What the assistant said. calls: (name, arguments as the endpoint wrote them), in order."""

    text: str
    calls: tuple[tuple[str, Any], ...]
    finish: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    usd: float = 0.0
    cached: bool = False


class ChatClient:
    """One role's conversations over one ledger; of one event loop at a time. The stage names them
    in the ledger. Raises LLMError where the role has no model: rules do not converse."""

    def __init__(
        self,
        role: Role,
        ledger: Ledger,
        *,
        stage: str,
        endpoint: OpenAIEndpoint | None = None,
        scope: str = "usd",
    ) -> None:
        if role.model == OFFLINE:
            raise LLMError(
                "no_provider",
                f"role {role.name} with model 'offline'",
                "a model that converses and calls tools",
                f"set roles.{role.name}.model and base_url in toolmill.toml",
            )
        if role.protocol != OPENAI:
            raise LLMError(
                "no_provider",
                f"role {role.name} with protocol {role.protocol!r:.80}",
                "protocol 'openai', in which tools are called",
                f"set roles.{role.name}.protocol = 'openai' in toolmill.toml",
            )
        self.role = role
        self._stage = stage
        self._endpoint = endpoint or OpenAIEndpoint()
        self._calls = PaidCalls([role], ledger, scope=scope)

    async def say(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, seed: int = 0
    ) -> ChatTurn:
        """The next turn. tools: OpenAI functions. Raises LLMError, BudgetExceeded, resumable."""
        role = self.role
        body: dict[str, Any] = {"messages": [dict(message) for message in messages], "seed": seed}
        body |= {"temperature": role.temperature, "max_tokens": role.max_tokens}
        body |= {"tools": list(tools)} if tools else {}
        text = json.dumps(body, sort_keys=True)
        most = len(text)  # bytes of ASCII: never fewer than the tokens that are billed
        question = PaidQuestion(
            role,
            self._stage,
            sha256(f"chat:{role.model}:{text}".encode()),
            most_tokens=most // 3 + role.max_tokens,
            most_usd=compute_price(role, most, role.max_tokens),
        )

        async def answer(_tries: int) -> dict[str, Any]:
            choice = await self._endpoint.post(
                role, body, lambda response: read_choice(response, role, _MOST_CALLS)
            )
            names = ("text", "finish", "model", "prompt_tokens", "completion_tokens")
            facts = {name: getattr(choice.completion, name) for name in names}
            return {**facts, "calls": [list(call) for call in choice.calls]}

        paid = await self._calls.ask(question, answer)
        calls = tuple((name, arguments) for name, arguments in paid.facts["calls"])
        return ChatTurn(**{**paid.facts, "calls": calls, "usd": paid.usd, "cached": paid.cached})

    async def aclose(self) -> None:
        """Closes connections of the running event loop; call it before the loop ends."""
        await self._endpoint.aclose()


def write_wire_name(name: str) -> str:
    """A name or id as endpoints take it: [a-zA-Z0-9_-], at most 64, first a letter or _ (Gemini),
    by `name` alone: sound ones stay, all others end with 64 bits of their digest."""
    if _SOUND.fullmatch(name) and not _DIGESTED.search(name):
        return name
    end = f"_{sha256(name.encode('utf-8', 'surrogatepass'))[:_DIGITS]}"
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    short = plain[-(_LONGEST_NAME - len(end)) :]  # the tool stands behind its server
    if plain[: -len(short)][-1:] not in ("", "_", "-"):
        short = re.sub(r"\A[^_-]*[_-]+(?=.)", "", short)  # no half word
    return re.sub(r"\A[0-9-]", "_", short) + end
