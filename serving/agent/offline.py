"""An agent without a model: rules that ask for what the task says and take the nearest tool.

It shows that the loop works and what the router does with a plain request; it is no model, and
every row of it says `provider=offline`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serving.discovery.request import write_block
from warehouse.llm.chat import Turn

OFFLINE_MODEL = "rules"
NONE_FITS = "No suitable tool was found."
Fill = Callable[[Mapping[str, Any], str], dict[str, Any]]


class OfflineSpeaker:
    """Asks once for a tool in the words of the last user message before it, calls the first
    function shown, and ends. Given functions from the start, it calls the one with the best BM25.
    fill: (contract, request) -> arguments."""

    def __init__(self, fill: Fill | None = None) -> None:
        self._fill = fill or (lambda _contract, _request: {})

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Turn:
        """The next turn, by what the last message is."""
        last = messages[-1]
        asked = [at for at, one in enumerate(messages) if _has_asked(one)]
        request = _find_request(messages[: asked[0]] if asked else messages)
        if last["role"] == "tool":
            return _make_turn(str(last["content"]))
        if not asked and not tools:
            return _make_turn(write_block(None, " ".join(request.split())))
        if not tools or str(last["content"]).startswith("No tool surely fits"):
            return _make_turn(NONE_FITS)
        function = tools[0 if asked else _find_nearest(tools, request)]["function"]
        contract = {**function, "inputSchema": function["parameters"]}
        return _make_turn("", (function["name"], self._fill(contract, request)))


def _has_asked(message: Mapping[str, Any]) -> bool:
    content = str(message.get("content") or "")
    return message["role"] == "assistant" and content.startswith("<tool_assistant>")


def _find_nearest(tools: Sequence[Mapping[str, Any]], request: str) -> int:
    from assets.vectors.lexical import BM25

    texts = [(tool["function"]["name"], tool["function"]["description"]) for tool in tools]
    return int(BM25.build([f"{name} {about}" for name, about in texts]).score(request).argmax())


def _find_request(messages: Sequence[Mapping[str, Any]]) -> str:
    requests = [str(message["content"]) for message in messages if message["role"] == "user"]
    return requests[-1] if requests else ""


def _make_turn(text: str, *calls: tuple[str, Any]) -> Turn:
    return Turn(text, calls, "tool_calls" if calls else "stop", OFFLINE_MODEL, 0, 0)
