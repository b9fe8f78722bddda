"""One turn of a conversation with tools, through the ledger: asked once, paid once.

messages + tools -> key -> look up in the ledger -> send -> text and calls as they were written
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.ledger.ledger import Ledger, Outcome
from warehouse.llm.dispatch import Sending
from warehouse.llm.endpoint import Endpoint
from warehouse.llm.request_keys import price
from warehouse.llm.roles import OFFLINE, LLMError, Role
from warehouse.storage.digest import sha256

Message = Mapping[str, Any]
_MOST_CALLS = 64


@dataclass(frozen=True)
class Turn:
    """What the assistant said. calls: (name, arguments as the endpoint wrote them), in order."""

    text: str
    calls: tuple[tuple[str, Any], ...]
    finish: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    usd: float = 0.0
    cached: bool = False


class Chat:
    """One role's conversations over one ledger; of one event loop at a time. The stage names them
    in the ledger. Raises LLMError where the role has no model: rules do not converse."""

    def __init__(
        self,
        role: Role,
        ledger: Ledger,
        *,
        stage: str,
        endpoint: Endpoint | None = None,
        scope: str = "usd",
    ) -> None:
        if role.model == OFFLINE:
            raise LLMError(
                "no_provider",
                f"role {role.name} with model 'offline'",
                "a model that converses and calls tools",
                f"set roles.{role.name}.model and base_url in toolmill.toml",
            )
        self.role = role
        self._ledger, self._stage, self._scope = ledger, stage, scope
        self._endpoint = endpoint or Endpoint()
        self._sending = Sending([role])

    async def say(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], *, seed: int = 0
    ) -> Turn:
        """The assistant's next turn. tools: OpenAI functions. Raises LLMError or BudgetExceeded;
        both leave everything resumable."""
        role = self.role
        body: dict[str, Any] = {"messages": [dict(one) for one in messages], "seed": seed}
        body |= {"temperature": role.temperature, "max_tokens": role.max_tokens}
        body |= {"tools": list(tools)} if tools else {}
        text = json.dumps(body, sort_keys=True)
        key = sha256(f"chat:{role.model}:{text}".encode())
        data = self._ledger.seen(key)
        if data is not None:
            return _stored(data, cached=True)
        most = len(text)  # bytes of ASCII: never fewer than the tokens that are billed
        stored, cached = await self._sending.send(
            role,
            most // 3 + role.max_tokens,
            lambda tries: self._try(body, key, most),
        )
        return _stored(stored, cached=cached)

    async def _try(
        self, body: dict[str, Any], key: str, most: int
    ) -> tuple[tuple[bytes, bool], int | None]:
        role, sent = self.role, False

        async def carry_out() -> Outcome:
            nonlocal sent
            sent = True
            turn = await self._endpoint.post(
                role,
                lambda refused: _parameters(body, role, refused),
                lambda said: _turn(said, role),
            )
            used = turn.prompt_tokens, turn.completion_tokens
            usd = price(role, *used)
            facts = {**vars(turn), "calls": [list(call) for call in turn.calls], "usd": usd}
            return Outcome(json.dumps(facts).encode(), turn.model, *used, usd)

        data = await self._ledger.once_async(
            self._stage,
            key,
            carry_out,
            reserve_usd=price(role, most, role.max_tokens),
            scope=self._scope,
        )
        turn = _stored(data, cached=not sent)
        return (data, not sent), (turn.prompt_tokens + turn.completion_tokens if sent else None)

    async def aclose(self) -> None:
        """Closes connections of the running event loop; call it before the loop ends."""
        await self._endpoint.aclose()


def wire_names(names: Sequence[str]) -> dict[str, str]:
    """Each tool's name as endpoints take it: [a-zA-Z0-9_-], at most 64, unique."""
    taken: set[str] = set()
    out: dict[str, str] = {}
    for name in dict.fromkeys(names):
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "tool"
        made, number = plain, 2
        while made in taken or (made != name and made in names):
            made, number = f"{plain[:60]}_{number}", number + 1
        taken.add(made)
        out[name] = made
    return out


def _parameters(body: Mapping[str, Any], role: Role, refused: set[str]) -> dict[str, Any]:
    wanted = {"model": role.model, **body}
    if "max_tokens" in refused:
        wanted["max_completion_tokens"] = role.max_tokens
    return {name: value for name, value in wanted.items() if name not in refused}


def _turn(said: Any, role: Role) -> Turn:
    """Raises ValueError for what is no response."""
    try:
        choice, usage = said["choices"][0], said.get("usage") or {}
        message = choice["message"]
        content = message.get("refusal") or message.get("content") or ""
        tokens = tuple(int(usage.get(f"{kind}_tokens") or 0) for kind in ("prompt", "completion"))
        raw = message.get("tool_calls") or []
        calls = tuple(_call(one) for one in raw[:_MOST_CALLS])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"a response without choices: {str(said)[:100]}") from error
    if isinstance(content, list):  # some endpoints answer in parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    finish = "refusal" if message.get("refusal") else str(choice.get("finish_reason") or "stop")
    model = str(said.get("model") or role.model)
    return Turn(_clean(str(content)), calls, finish, model, tokens[0], tokens[1])


def _call(one: Any) -> tuple[str, Any]:
    function = one["function"]
    arguments = function.get("arguments")
    return _clean(str(function["name"])), _clean(arguments) if isinstance(
        arguments, str
    ) else arguments


def _clean(text: str) -> str:
    """Half of a surrogate pair is no text: neither the ledger nor the next request could hold
    it."""
    return text.encode("utf-8", "replace").decode()


def _stored(data: bytes, *, cached: bool) -> Turn:
    facts = json.loads(data)
    calls = tuple((name, arguments) for name, arguments in facts.pop("calls"))
    return Turn(**{**facts, "calls": calls, "cached": cached})
