"""A conversation that a local model begins and the upstream goes on with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extensions.proxy.apis.chat import repair_chat
from extensions.proxy.apis.responses import repair_response
from extensions.proxy.calls import CallRepair
from extensions.proxy.events import list_dicts
from extensions.proxy.local.upstream import CHAT, RESPONSES, LocalUpstream, write_events
from extensions.proxy.upstream import Headers, UpstreamFailed
from warehouse.json_types import JsonObject

_JSON, _STREAM = b"application/json", b"text/event-stream"


@dataclass(frozen=True)
class FirstAnswer:
    """outcome: written; later (the conversation has begun), none (no call), unfit, failed. sent:
    the body, b"" where the upstream is to answer. repair: of the calls in it."""

    outcome: str
    sent: bytes = b""
    headers: Headers = field(default_factory=list)
    repair: CallRepair | None = None


class FirstCall:
    """Asks the local model for the first call of a conversation. What is no call that fits, after
    the ladder, is the upstream's to answer."""

    def __init__(self, local: LocalUpstream) -> None:
        self._local = local

    async def write_answer(self, rest: str, body: bytes, repair: CallRepair) -> FirstAnswer:
        """rest: the path below `/v1`. repair: of this request, with nothing judged yet."""
        path, asked = rest.partition("?")[0], json.loads(body)
        if not is_beginning(asked):
            return FirstAnswer("later")
        try:
            whole = await self._local.write_answer(path, asked)
        except UpstreamFailed:
            return FirstAnswer("failed")
        own = repair.begin_again()
        calls = await _repair_calls(path, whole, own)
        if not calls or own.count_left():
            return FirstAnswer("unfit" if calls else "none")
        whole["toolmill"] = {**(own.describe_field() or {}), "first_call": self._local.model.label}
        if asked.get("stream"):
            sent, kind = b"".join(write_events(path, asked, whole)), _STREAM
        else:
            sent, kind = json.dumps(whole).encode(), _JSON
        count = str(own.count_repaired()).encode()
        headers = [(b"content-type", kind), (b"x-toolmill-repaired", count)]
        return FirstAnswer("written", sent, headers, own)


def is_beginning(body: JsonObject) -> bool:
    """Whether nothing was answered yet: only the user and the system have spoken."""
    if body.get("previous_response_id") or body.get("conversation"):
        return False
    given = body.get("messages", body.get("input"))
    if isinstance(given, str):
        return True
    listed = given if isinstance(given, list) else []
    roles = {str(one.get("role", one.get("type"))) for one in listed if isinstance(one, Mapping)}
    return bool(roles) and roles <= {"system", "developer", "user"}


async def _repair_calls(path: str, whole: dict[str, Any], repair: CallRepair) -> int:
    """Repairs the calls of an answer in place; how many it has."""
    if path == RESPONSES:
        await repair_response(whole, repair)
        return sum(one.get("type") == "function_call" for one in list_dicts(whole, "output"))
    assert path == CHAT
    await repair_chat(whole, repair)
    return sum(
        len(list_dicts(one.get("message"), "tool_calls")) for one in list_dicts(whole, "choices")
    )
