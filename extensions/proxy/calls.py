"""The calls of one request: what it offers and says, and the repair of its calls."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import anyio.to_thread

from assets.contracts.rename_history import ContractHistory
from extensions.proxy.exchange import list_dicts
from extensions.proxy.revising import RequestReviser
from serving.repair.drafts import DraftCall
from serving.repair.ladder import repair_draft
from serving.repair.rungs import ABSTAINED, CHANGED, SKIPPED
from serving.repair.tools import RepairToolset, ReviseCall, read_toolset
from warehouse.json_types import JsonObject, Record


class ToolsRefused(ValueError):
    """The tools of a request cannot be used, in one line."""


@dataclass(frozen=True)
class ToolOffer:
    """What a request offers and says. toolset: its functions with parameters. unjudged: names of
    those without. user_messages: no others are evidence of a value, for texts of third parties
    stand in them. chosen: name -> tool id of what the router picked."""

    toolset: RepairToolset
    unjudged: frozenset[str] = frozenset()
    user_messages: list[Mapping[str, Any]] = field(default_factory=list)
    chosen: Mapping[str, str] = field(default_factory=dict)

    def extend(self, tools: Iterable[Any], tool_ids: Mapping[str, str]) -> "ToolOffer":
        """The same with functions that were found for it, name -> tool id of those of the index."""
        judged, unjudged = _sort_functions(tools)
        known, new = {name: [*of] for name, of in self.toolset.by_name.items()}, []
        for candidate in read_toolset(judged).candidates:
            same = known.setdefault(candidate.name, [])
            if candidate not in same:
                same.append(candidate)
                new.append(candidate)
        return replace(
            self,
            toolset=RepairToolset((*self.toolset.candidates, *new)),
            unjudged=self.unjudged | unjudged,
            chosen={**self.chosen, **tool_ids},
        )

    def has(self, name: str) -> bool:
        """Whether a function of this very name is offered."""
        return name in self.toolset.by_name or name in self.unjudged


def read_offer(body: JsonObject, most: int, *, empty: bool = False) -> ToolOffer | None:
    """The functions of a request of any API, and what its user says; None without functions, unless
    `empty`. Those in namespaces, and those that earlier tool searches of the conversation
    found, are offered too. Raises ToolsRefused for more than `most` tools."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return None
    listed = [*_list_flat(tools)]
    if len(listed) > most:
        raise ToolsRefused(f"the request has {len(listed)} tools, allowed are {most}; send fewer")
    offer = ToolOffer(RepairToolset(()), user_messages=list_user_messages(body)).extend(listed, {})
    if earlier := [*islice(_list_found(body), most)]:
        offer = offer.extend(earlier, {})
    found = offer.toolset.candidates or offer.unjudged
    return offer if found or empty else None


def _list_found(body: JsonObject) -> Iterator[Any]:
    for item in list_dicts(body, "input"):
        if item.get("type") == "tool_search_output":
            yield from _list_flat(item.get("tools"))


def _list_flat(tools: Any) -> Iterator[Any]:
    """Tools, in the place of a namespace those that it holds."""
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, Mapping) and tool.get("type") == "namespace":
            inner = tool.get("tools")
            yield from inner if isinstance(inner, list) else []
        else:
            yield tool


def _sort_functions(tools: Iterable[Any]) -> tuple[list[Any], frozenset[str]]:
    """(functions with parameters, names of those without, and of tools that Anthropic defines)."""
    judged, unjudged = [], set[str]()
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        kind, inner = tool.get("type") or "custom", tool.get("function", tool)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            continue
        if kind == "custom" and "input_schema" not in tool:  # OpenAI's, which takes any text
            continue
        schema = {"function": "parameters", "custom": "input_schema"}.get(str(kind))
        if isinstance(inner.get(schema), Mapping):
            judged.append(tool)
        else:
            unjudged.add(inner["name"])
    return judged, frozenset(unjudged)


def list_user_messages(body: JsonObject) -> list[Mapping[str, Any]]:
    """The user's messages, of `messages` (chat, Messages) or `input` (Responses); without
    the results of tools that stand in Anthropic's too."""
    given = body.get("messages", body.get("input"))
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    listed = given if isinstance(given, list) else []
    said = [item for item in listed if isinstance(item, Mapping) and item.get("role") == "user"]
    return [{**item, "content": _drop_results(item.get("content"))} for item in said]


def _drop_results(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [item for item in content if not (isinstance(item, Mapping) and _is_result(item))]


def _is_result(part: Mapping[str, Any]) -> bool:
    return str(part.get("type")).endswith("_result")


@dataclass(frozen=True)
class FixedCall:
    """name, text: of the call as it is handed on. steps: what was changed. left: why it was not.
    asked: whether a model was asked for it; refused: why its answer was not taken."""

    name: str
    text: str
    steps: list[str] = field(default_factory=list)
    left: str = ""
    asked: bool = False
    refused: str = ""


def fix_call(
    offer: ToolOffer,
    history: ContractHistory | None,
    name: str,
    text: str,
    revise: ReviseCall | None = None,
) -> FixedCall:
    """A call, changed only where it then fits a function that was offered."""
    found = repair_draft(
        DraftCall(name, text),
        offer.toolset,
        conversation=offer.user_messages,
        history=history,
        revise=revise,
    )
    rung = next((rung for rung in found.rungs if rung.rung == "revise"), None)
    asked = revise is not None and rung is not None and rung.outcome != SKIPPED
    refused = rung.why if rung and asked and rung.outcome != CHANGED else ""
    if found.outcome == ABSTAINED:
        reason = found.reason
        left = f"{reason.kind}: {reason.question}" if reason else ""
        return FixedCall(name, text, [], left, asked, refused)
    return FixedCall(found.name, found.text, found.steps, "", asked, refused)


class CallRepair:
    """The calls of one answer. The same call is judged once, however many events of a stream
    repeat it. revising: a model for the calls that the ladder leaves without one."""

    def __init__(
        self,
        offer: ToolOffer,
        history: ContractHistory | None = None,
        revising: RequestReviser | None = None,
    ) -> None:
        self._offer, self._history, self._revising = offer, history, revising
        self._known: dict[tuple[str, str, str], FixedCall] = {}
        self.notes: list[Record] = []
        self._searches: list[Record] = []

    def may_rename(self, name: str) -> bool:
        """Whether a call of this name could be handed on under another."""
        return not self._offer.has(name)

    async def fix_call(self, call_id: Any, name: Any, text: Any, *, cut: bool) -> FixedCall:
        """The call as it is handed on. cut: the answer ended before the call was known to be whole:
        what its tail was is not guessed."""
        name = name if isinstance(name, str) else ""
        key = (str(call_id), name, str(text))
        if key not in self._known:
            self._known[key] = await self._judge(name, str(text), cut)
            self._note(key, self._known[key])
        return self._known[key]

    async def _judge(self, name: str, text: str, cut: bool) -> FixedCall:
        if name in self._offer.unjudged:
            return FixedCall(name, text)
        if cut and not is_whole(text):
            return FixedCall(
                name, text, left="cut_off: the answer ended before the call was complete"
            )
        fixed = await anyio.to_thread.run_sync(fix_call, self._offer, self._history, name, text)
        return await self._ask_model(fixed, name, text) if fixed.left else fixed

    async def _ask_model(self, fixed: FixedCall, name: str, text: str) -> FixedCall:
        """What a model makes of a call that the ladder left, within its own time."""
        model = self._revising
        if model is None:
            return fixed
        with anyio.move_on_after(model.timeout_s) as scope:
            asked = self._offer, self._history, name, text, model.revise
            result = await anyio.to_thread.run_sync(fix_call, *asked, abandon_on_cancel=True)
        if scope.cancelled_caught:
            result = replace(fixed, asked=True, refused=f"no answer in {model.timeout_s:g} s")
        if result.asked:
            model.count("left" if result.left else "repaired")
        return result

    def _note(self, key: tuple[str, str, str], fixed: FixedCall) -> None:
        note: dict[str, Any] = {"call": key[0], "tool": key[1]}
        if fixed.asked and self._revising is not None:
            note["revised_by" if fixed.steps else "asked"] = self._revising.label
            note |= {"refused": fixed.refused} if fixed.refused else {}
        if fixed.steps:
            self.notes.append({**note, "repaired": fixed.steps})
        elif fixed.left:
            self.notes.append({**note, "left": [fixed.left]})

    def offer_more(self, tools: Iterable[Any], tool_ids: Mapping[str, str]) -> None:
        """Judges calls of these tools too. tool_ids: name -> tool id of those of the index."""
        self._offer = self._offer.extend(tools, tool_ids)

    def note_search(self, tools: Iterable[Any], tool_ids: Mapping[str, str], note: Record) -> None:
        """Offers what a tool search of the model found. note: {call, tools} or {call, error}."""
        self.offer_more(tools, tool_ids)
        self._searches.append(note)

    def begin_again(self) -> "CallRepair":
        """The same for another answer to the same request."""
        return CallRepair(self._offer, self._history, self._revising)

    def count_left(self) -> int:
        """Calls that do not fit and were left."""
        return len(self.notes) - self.count_repaired()

    def count_repaired(self) -> int:
        """Calls that were changed until now."""
        return sum("repaired" in note for note in self.notes)

    def describe_field(self) -> Record | None:
        """The field `toolmill` of an answer; None where there is nothing to tell."""
        note = {"tools": dict(self._offer.chosen)} if self._offer.chosen else {}
        if self._searches:
            note |= {"searches": self._searches}
        if self.notes:
            note |= {"repaired": self.count_repaired(), "calls": self.notes}
        return note or None


def is_whole(text: str) -> bool:
    """Whether a text is JSON to its end."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
