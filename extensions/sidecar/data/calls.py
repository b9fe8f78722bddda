"""The good calls of a training set, each in its conversation and among the tools on offer, and the
questions that are right in place of a call."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from extensions.sidecar.flaws.drafts import GoodCall
from serving.repair.evidence import ConversationEvidence
from training.prompts.rows import (
    Turn,
    is_learnt,
    list_turns,
    read_calls,
    read_json_list,
    read_message_calls,
    read_messages,
)
from training.sets.candidates import draw_candidates
from training.sets.pool import BadOffer, Pool, select_split_pool
from warehouse.json_types import Contract, Row

Messages = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Refused:
    """A call that a server refused. error: in the server's words."""

    name: str
    arguments: Any
    error: str


@dataclass(frozen=True)
class PlacedCall:
    """A call in its place. conversation: before it, and before the refused call where there was
    one. tools: on offer, its own among them. question: what is asked in its place; then the call
    holds what the conversation has of it so far."""

    row: Row
    good: GoodCall
    conversation: Messages
    tools: tuple[Contract, ...]
    refused: Refused | None = None
    question: str = ""


def place_calls(
    rows: Sequence[Row], entries: Mapping[str, Mapping[str, Any]], *, candidates: int, seed: int = 0
) -> list[PlacedCall]:
    """The calls of training-set rows of one split, in their order. entries: of the set's pool."""
    if not rows:
        return []
    pool = select_split_pool(entries, rows[0]["split"])
    found = [one for row in rows for one in _place_row(row, pool, candidates, seed)]
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for one in found:
        if not one.question:
            groups[one.good.server, one.good.name].append(one.good.arguments)
    return [_add_sibling(one, groups[one.good.server, one.good.name]) for one in found]


def _place_row(row: Row, pool: Pool, candidates: int, seed: int) -> Iterator[PlacedCall]:
    try:
        tools = tuple(draw_candidates(row, pool, candidates, seed=seed))
    except BadOffer:  # its tool may not be shown on this side of the split
        return
    digests = {call["name"]: call["contract_digest"] for call in read_json_list(row["calls"])}
    digests.setdefault(row["tool"], row["contract_digest"])
    for turn in list_turns(row):
        name = turn.calls[0]["name"] if turn.calls else row["tool"]
        if digests.get(name) not in pool or not (len(turn.calls) == 1 or turn.asks):
            continue
        contract, server = pool[digests[name]], pool.get_server(digests[name])
        conversation, refused, words = _read_around(row, turn)
        arguments = turn.calls[0]["arguments"] if turn.calls else _list_stated(row, conversation)
        beside = tuple(tool["name"] for tool in tools if tool["name"] != name)
        good = GoodCall(server or row["server_id"], contract, arguments, beside=beside)
        yield PlacedCall(row, good, conversation, tools, refused, words if turn.asks else "")


def _read_around(row: Row, turn: Turn) -> tuple[Messages, Refused | None, str]:
    """(the conversation before a turn, the refused call that it ended with, the turn's words)."""
    spoken, at = read_messages(row), len(turn.before)
    if not spoken:
        return ({"role": "user", "content": row["instruction"]},), None, ""
    before = tuple({k: v for k, v in one.items() if k != "weight"} for one in spoken[:at])
    words = str(spoken[at].get("content") or "")
    wrong = spoken[at - 2] if at > 1 and spoken[at - 1]["role"] == "tool" else None
    if wrong is None or wrong["role"] != "assistant" or is_learnt(wrong):
        return before, None, words
    [call, *_] = read_message_calls(wrong)
    error = str(spoken[at - 1].get("content") or "")
    return before[:-2], Refused(call["name"], call["arguments"], error), words


def _list_stated(row: Row, conversation: Messages) -> dict[str, Any]:
    """The arguments of the call that follows in the end, as far as they are said by now."""
    held = ConversationEvidence(conversation)
    calls = [call for call in read_calls(row) if call["name"] == row["tool"]][:1]
    given = [pair for call in calls for pair in call["arguments"].items()]
    return {name: value for name, value in given if held.states(value, {}, name)}


def _add_sibling(one: PlacedCall, group: Sequence[Mapping[str, Any]]) -> PlacedCall:
    own = one.good.arguments
    after = group[(group.index(own) + 1) % len(group)] if own in group else own
    return one if after == own else replace(one, good=replace(one.good, sibling=after))
