"""Calls: what the tools of one request say of the calls in its answer."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread

from assets.contracts.repair.repair import Repaired, repair_call
from warehouse.json_types import Contract, JsonObject, Record
from warehouse.llm.json_text import repair_json

_LONGEST = 200_000  # characters of broken JSON that are repaired; valid JSON may be longer
_TWO = re.compile(r"\}\s*;?\s*\{")  # one object after another: the library would keep the last
_PROBLEMS = 5  # of one call that are told


@dataclass(frozen=True)
class Fixed:
    """text: the arguments as they are handed on. steps: what was changed. left: what was not."""

    text: str
    steps: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class ToolsRefused(ValueError):
    """The tools of a request cannot be used, in one line."""


def read_contracts(body: JsonObject, most: int) -> dict[str, Contract]:
    """Name -> contract of the functions that a request offers, of either API. A function without
    parameters has no contract to be judged by. Raises ToolsRefused for more than `most` tools."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return {}
    if len(tools) > most:
        raise ToolsRefused(f"the request has {len(tools)} tools, allowed are {most}; send fewer")
    found: dict[str, Contract] = {}
    for tool in tools:
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            continue
        inner = tool.get("function", tool)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            continue
        found[inner["name"]] = {"name": inner["name"], "inputSchema": inner.get("parameters")}
    return found


def fix_arguments(contract: Contract, text: str) -> Fixed:
    """The text of a call's arguments, changed only where the call then fits its contract."""
    try:
        given, steps = _read_strict(text), []
    except (ValueError, RecursionError):
        given, steps = _read_broken(text)
        if not steps:
            return Fixed(text, left=["the arguments are no JSON"])
    found = repair_call(contract, given)
    if found.problems_left:
        return Fixed(text, left=_describe_left(found))
    steps = [*steps, *found.steps]
    return Fixed(json.dumps(found.arguments, ensure_ascii=False), steps) if steps else Fixed(text)


def _read_strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse) if text.strip() else None


def _read_broken(text: str) -> tuple[Any, list[str]]:
    """(value, steps) of text that is no JSON; no steps where nothing sure comes of it."""
    readable = len(text) <= _LONGEST and not _TWO.search(text)
    values = repair_json(text) if readable else []
    if len(values) != 1 or not isinstance(values[0], dict):
        return None, []
    return values[0], ["the arguments were broken JSON: read them"]


def _describe_left(found: Repaired) -> list[str]:
    return [f"{one['path']}: {one['kind']}" for one in found.problems_left[:_PROBLEMS]]


class CallRepair:
    """The calls of one answer. fix: judges one call; the same call is judged once, however many
    events of a stream repeat it. spend: is given the seconds that judging took."""

    def __init__(
        self,
        contracts: Mapping[str, Contract],
        fix: Callable[[Contract, str], Fixed] = fix_arguments,
    ) -> None:
        self._contracts, self._fix = contracts, fix
        self._known: dict[tuple[str, str, str], Fixed] = {}
        self.notes: list[Record] = []

    async def fix_call(self, call_id: Any, name: Any, text: Any, *, cut: bool) -> str:
        """The arguments as they are handed on. cut: the answer ended before the call was known to
        be whole: what its tail was is not guessed."""
        key = (str(call_id), str(name), str(text))
        if key not in self._known:
            self._known[key] = await self._judge(str(name), str(text), cut)
            self._note(key, self._known[key])
        return self._known[key].text

    async def _judge(self, name: str, text: str, cut: bool) -> Fixed:
        contract = self._contracts.get(name)
        if contract is None:
            return Fixed(text, left=["no function of that name was offered"])
        if not isinstance(contract["inputSchema"], Mapping):
            return Fixed(text)
        if cut and not _is_whole(text):
            return Fixed(text, left=["the answer ended before the call was complete"])
        return await anyio.to_thread.run_sync(self._fix, contract, text)

    def _note(self, key: tuple[str, str, str], fixed: Fixed) -> None:
        told = {"call": key[0], "tool": key[1]}
        if fixed.steps:
            self.notes.append({**told, "repaired": fixed.steps})
        elif fixed.left:
            self.notes.append({**told, "left": fixed.left})

    def count_repaired(self) -> int:
        """Calls that were changed until now."""
        return sum("repaired" in note for note in self.notes)

    def describe_field(self) -> Record | None:
        """The field `toolmill` of an answer; None where there is nothing to tell."""
        if not self.notes:
            return None
        return {"repaired": self.count_repaired(), "calls": self.notes}


def _is_whole(text: str) -> bool:
    try:
        _read_strict(text)
    except (ValueError, RecursionError):
        return False
    return bool(text.strip())
