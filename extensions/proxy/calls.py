"""The calls of one request: what it offers and says, the repair of its calls, and their reviser."""

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import anyio.to_thread

from assets.contracts.rename_history import ContractHistory
from assets.contracts.repair.json_text import parse_arguments
from extensions.proxy.exchange import list_dicts, read_object
from extensions.proxy.upstream import Headers
from serving.repair.drafts import DraftCall, read_drafts
from serving.repair.ladder import repair_draft
from serving.repair.rungs import ABSTAINED, CHANGED, SKIPPED
from serving.repair.tools import (
    NEAREST,
    ProposedCall,
    RepairToolset,
    ReviseCall,
    RevisionRequest,
    make_revision_messages,
    read_toolset,
)
from warehouse.json_types import JsonObject, Record
from warehouse.network.http import open_client

_MOST_BYTES = 8_000_000  # of an answer
_MOST_TOKENS = 4096
LADDER_S = 10.0  # of one call; the slowest hostile one of the tests takes 3
# Of the client's own request, which is another than this: its body, the answer that it takes, and
# what makes two requests one.
_OF_THE_REQUEST = (b"content-", b"accept", b"if-", b"idempotency-", b"x-idempotency-")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # of a call, as Anthropic's API takes it back
_KEYS = (b"authorization", b"x-api-key", b"api-key")


# Who rewrites drafts for one request, called in threads. The headers are those that are sent to the
# upstream, so that its model is asked with the client's own key.
OpenRevise = Callable[[Headers], ReviseCall]


def guard_model(revise: ReviseCall) -> OpenRevise:
    """One model that runs here for all requests: it revises one draft at a time."""
    turn = threading.Lock()

    def revise_in_turn(request: RevisionRequest) -> ProposedCall | None:
        with turn:
            return revise(request)

    return lambda headers: revise_in_turn


@dataclass(frozen=True)
class CallReviser:
    """label: as clients are told it. timeout_s: of one call; a later answer is not used."""

    label: str
    open: OpenRevise
    timeout_s: float = 20.0


@dataclass(frozen=True)
class RequestReviser:
    """A reviser for one request. count: notes the outcome of a call: repaired or left."""

    label: str
    revise: ReviseCall
    timeout_s: float
    count: Callable[[str], None]


class ReviserFailed(RuntimeError):
    """The endpoint did not answer. Clients read why: it holds neither its address nor the key, as
    an error of HTTP may."""


class UpstreamReviser:
    """Asks a model of the upstream for a rewritten call. base: address that stands for `/v1`. key:
    in the place of the client's, "" sends that. timeout_s: without a byte."""

    def __init__(self, base: str, model: str, key: str = "", timeout_s: float = 20.0) -> None:
        self._url, self._model, self._key = f"{base}/chat/completions", model, key
        host = urlsplit(base).hostname or ""
        self._client = open_client(
            trusted=[host], allow_loopback=True, most_bytes=_MOST_BYTES, timeout=timeout_s
        )

    def __call__(self, headers: Headers) -> ReviseCall:
        dropped = (*_OF_THE_REQUEST, *(_KEYS if self._key else ()))
        sent = [header for header in headers if not header[0].lower().startswith(dropped)]
        if self._key:
            sent.append((b"authorization", f"Bearer {self._key}".encode()))

        def revise(request: RevisionRequest) -> ProposedCall | None:
            """Raises ReviserFailed, or what an answer in another form does: the draft stands."""
            body = {"model": self._model, "temperature": 0, "max_tokens": _MOST_TOKENS}
            body |= {"messages": make_revision_messages(request)}
            body |= {"tools": [_write_tool(candidate.contract) for candidate in request.candidates]}
            try:
                answer = self._client.post(self._url, json=body, headers=sent).raise_for_status()
            except Exception as error:  # of HTTP, of the egress guard
                raise ReviserFailed(type(error).__name__) from None
            return read_proposal(answer.json()["choices"][0]["message"])

        return revise


def read_proposal(message: Mapping[str, Any]) -> ProposedCall | None:
    """The first call in a chat message, also one written in its text, else its question; None for
    neither."""
    drafts = read_drafts(message)
    if drafts:
        values = [drafts[0].arguments]
        if isinstance(values[0], str):
            values = list(parse_arguments(values[0]).values)
        return ProposedCall(drafts[0].name, values[0]) if len(values) == 1 else None
    text = message.get("content")
    asked = isinstance(text, str) and text.strip().endswith("?")
    return ProposedCall("", None, " ".join(str(text).split())) if asked else None


def _write_tool(contract: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": contract["name"], "description": contract.get("description") or ""}
    return {"type": "function", "function": {**named, "parameters": contract["inputSchema"]}}


class ToolsRefused(ValueError):
    """The tools of a request cannot be used, in one line."""


@dataclass(frozen=True)
class ToolOffer:
    """What a request offers and says. toolset: its functions with parameters. unjudged: names of
    those without. user_messages: no others are evidence of a value, for texts of third parties
    stand in them. chosen: name -> tool id of what the router picked. reads_text: calls that stand
    in the text of an answer are calls."""

    toolset: RepairToolset
    unjudged: frozenset[str] = frozenset()
    user_messages: list[Mapping[str, Any]] = field(default_factory=list)
    chosen: Mapping[str, str] = field(default_factory=dict)
    reads_text: bool = True

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

    def find_written(self, name: str) -> str | None:
        """The function that a name in a text means, be it in marks of the model; no similar one."""
        found, how = self.toolset.find_named(name)
        if name in self.unjudged or not found:
            return name if name in self.unjudged else None
        return None if not name or how == NEAREST else found[0].name


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
    said, reads = list_user_messages(body), _takes_written_calls(body)
    offer = ToolOffer(RepairToolset(()), user_messages=said, reads_text=reads).extend(listed, {})
    outputs = [i for i in list_dicts(body, "input") if i.get("type") == "tool_search_output"]
    earlier = [tool for output in outputs for tool in _list_flat(output.get("tools"))]
    offer = offer.extend(earlier[:most], {})
    found = offer.toolset.candidates or offer.unjudged
    return offer if found or empty else None


def _takes_written_calls(body: JsonObject) -> bool:
    """False where no call, or JSON of the client's own form, was asked for."""
    choice, text = body.get("tool_choice"), body.get("text")
    choice = choice.get("type") if isinstance(choice, Mapping) else choice
    form = text.get("format") if isinstance(text, Mapping) else body.get("response_format")
    kind = form.get("type") if isinstance(form, Mapping) else ""
    return choice != "none" and not str(kind).startswith("json")


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
    return [
        item
        for item in content
        if not (isinstance(item, Mapping) and str(item.get("type")).endswith("_result"))
    ]


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

    @property
    def reads_text(self) -> bool:
        """Whether calls in the text of an answer are read."""
        return self._offer.reads_text

    def list_names(self) -> list[str]:
        """The names of all functions that are offered."""
        return [*self._offer.toolset.by_name, *self._offer.unjudged]

    async def fix_written(
        self, drafts: list[DraftCall], *, must_fit: bool
    ) -> list[tuple[str, FixedCall]] | None:
        """(id, call) of calls that stood in a text; None where one names no function of the
        request, cannot be read, or `must_fit` and does not."""
        calls = list[tuple[str, FixedCall]]()
        for draft in drafts:
            name, given = self._offer.find_written(draft.name), draft.arguments
            if draft.fault or name is None:
                return None
            text = given if isinstance(given, str) else json.dumps({} if given is None else given)
            fixed = await self._judge(name, text, cut=False)
            if read_object(fixed.text) is None or (must_fit and fixed.left):
                return None
            steps = ["took the call out of the text", *fixed.steps]
            usable = _ID.fullmatch(draft.id or "") and draft.id not in dict(calls)
            call_id = draft.id if draft.id and usable else make_call_id()
            calls.append((call_id, replace(fixed, steps=steps)))
        for call_id, fixed in calls:
            self._note((call_id, fixed.name, fixed.text), fixed)
        return calls

    async def fix_call(self, call_id: Any, name: Any, given: Any, *, cut: bool) -> FixedCall:
        """The call as it is handed on. given: its arguments, as text or, of some servers, as the
        object itself or null. cut: the answer ended before the call was known to be whole: what its
        tail was is not guessed."""
        name = name if isinstance(name, str) else ""
        text = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        key = (str(call_id), name, text)
        if key not in self._known:
            fixed = await self._judge(name, text, cut)
            if not (isinstance(given, str) or fixed.left or fixed.steps):
                fixed = replace(fixed, steps=["wrote the arguments as text"])
            self._known[key] = fixed
            self._note(key, fixed)
        return self._known[key]

    async def _judge(self, name: str, text: str, cut: bool) -> FixedCall:
        if name in self._offer.unjudged:
            return FixedCall(name, text)
        if cut and not is_whole(text):
            return FixedCall(
                name, text, left="cut_off: the answer ended before the call was complete"
            )
        with anyio.move_on_after(LADDER_S) as scope:
            judged = self._offer, self._history, name, text
            fixed = await anyio.to_thread.run_sync(fix_call, *judged, abandon_on_cancel=True)
        if scope.cancelled_caught:
            return FixedCall(name, text, left=f"too_large: not judged within {LADDER_S:g} s")
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
        note |= {"repaired": fixed.steps} if fixed.steps else {}
        note |= {"left": [fixed.left]} if fixed.left else {}
        if fixed.steps or fixed.left:
            self.notes.append(note)

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
        return sum("left" in note for note in self.notes)

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


def make_call_id() -> str:
    """A new id of a call."""
    return f"call_{uuid.uuid4().hex[:24]}"


def is_whole(text: str) -> bool:
    """Whether a text is JSON to its end."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
