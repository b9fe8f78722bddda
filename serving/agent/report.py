"""An agent's run as JSON and as lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from serving.agent.episode import PLANNED, AgentRun
from serving.discovery.session import Round
from warehouse.sanitize.escape import shorten_text

_LONGEST = 300  # characters of one text in a line; the JSON has all of it


def describe_run(made: AgentRun) -> dict[str, Any]:
    """The run as plain JSON, with what was asked and found in every round."""
    facts = ("ended", "error", "chosen", "answer", "turns", "tool_tokens", "prompt_tokens")
    fields = {name: getattr(made, name) for name in (*facts, "completion_tokens", "usd")}
    calls = [
        {name: getattr(call, name) for name in ("tool_id", "name", "arguments", "status", "shown")}
        for call in made.calls
    ]
    return {**fields, "calls": calls, "rounds": [_describe_round(one) for one in made.rounds]}


def write_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """A line for each request, tool and call, and for how it ended; long texts by their
    beginning."""
    for fact in facts["rounds"]:
        for asked in fact["asked"]:
            texts = {name: shorten_text(text, _LONGEST) for name, text in asked.items()}
            yield "asked  " + "; ".join(f"{name}: {text}" for name, text in texts.items())
        yield from (f"shown  {name}" for name in fact["shown"])
    for call in facts["calls"]:
        arguments = shorten_text(str(call["arguments"]), _LONGEST)
        yield f"{call['status']}  {call['tool_id'] or call['name']}  {arguments}"
        if call["status"] != "ok" and call["shown"]:
            yield f"  {shorten_text(call['shown'], _LONGEST)}"
    failed = sum(call["status"] not in ("ok", PLANNED) for call in facts["calls"])
    but = f"; {failed} of {len(facts['calls'])} calls failed" if failed else ""
    yield f"ended: {facts['ended']} after {facts['turns']} turns ({facts['provider']}){but}"
    if facts["error"]:
        yield shorten_text(facts["error"], _LONGEST)
    if facts["answer"]:
        yield from facts["answer"].splitlines()


def _describe_round(one: Round) -> dict[str, Any]:
    words = ("query", "server", "tool")
    asked = [{name: text for name in words if (text := getattr(ask, name))} for ask in one.asked]
    facts: dict[str, Any] = {"asked": asked, "shown": [hit.tool_id for hit in one.hits]}
    facts |= {"no_tool": [answer.no_tool for answer in one.answers], "tokens": one.tokens}
    if one.problems:
        facts["problems"] = list(one.problems)
    return facts | ({"stop": one.stop.kind} if one.stop else {})
