"""Which accepted pairs are in a training set, and on which side of it."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.synthesis.export.examples import UnusableExample, make_messages
from assets.synthesis.tables import (
    CLARIFY,
    MISSING,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    TASKS,
    TRAJECTORY,
    read_goldens,
)
from training.prompts.rows import list_turns
from training.sets.assignment import Key, Place
from training.sets.policy import SetPolicy
from training.sets.split import SEEN_TOOL, TRAIN, compute_pair_draw
from warehouse.json_types import Row

# What is no request and one answer: several turns, or an answer that is a question.
CONVERSATIONS = (SEQUENTIAL, MISSING, CLARIFY, RECOVERY, TRAJECTORY)
_EVOLVED = "evolve"  # the step of a receipt


@dataclass
class Placed:
    """A pair with the places of the tools that it is about, its own first: those it calls, or the
    one that it asks back about. `messages`: of a task that is a conversation."""

    pair: Row
    own: Place
    calls: list[dict[str, Any]]
    golds: tuple[Place, ...]
    split: str
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.pair["pair_id"]

    @property
    def request(self) -> str:
        return self.pair["instruction"]

    @property
    def task(self) -> str:
        return self.pair.get("task") or SINGLE

    @property
    def evolved(self) -> bool:
        steps = json.loads(self.pair.get("steps") or "[]")
        return any(step.get("step") == _EVOLVED for step in steps)

    @property
    def tools(self) -> set[tuple[str, str]]:
        """(server, tool) of every right call."""
        return self.subjects if self.calls else set()

    @property
    def subjects(self) -> set[tuple[str, str]]:
        """(server, tool) of every tool that it is about."""
        return {(place.key[0], place.key[1]) for place in self.golds}


@dataclass
class Tally:
    """Why pairs are left out, how many, and the first examples of each leak."""

    dropped: Counter[str] = field(default_factory=Counter)
    leaks: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def count_drop(self, why: str, **example: Any) -> None:
        self.dropped[why] += 1
        if example:
            self.leaks[why].append(example)


def place_pairs(
    pairs: Iterable[Row],
    places: Mapping[Key, Place],
    quarantined: Collection[str],
    policy: SetPolicy,
    tally: Tally,
) -> list[Placed]:
    """Every usable pair at its place. `quarantined`: digests of contracts that are held."""
    known = set(places)
    made = []
    for pair in sorted(pairs, key=lambda row: row["pair_id"]):
        why = _find_unusable_reason(pair, known, quarantined)
        if why:
            tally.count_drop(why)
        elif (one := _place_pair(pair, places, tally)) is not None:
            made.append(one)
    _hold_out_pairs(made, policy)
    return made


def collect_trained_tools(placed: Iterable[Placed]) -> set[tuple[str, str]]:
    """(server, tool) of every call that is learnt."""
    return {tool for one in placed if one.split == TRAIN for tool in one.tools}


def _find_unusable_reason(
    pair: Row, known: Collection[Key], quarantined: Collection[str]
) -> str | None:
    if (pair.get("task") or SINGLE) not in (*TASKS, TRAJECTORY):
        return "other_task"
    shown = {pair["contract_digest"], *json.loads(pair.get("contracts") or "[]")}
    keys = [(pair["server_id"], pair["tool"], pair["contract_digest"]), *_list_gold_keys(pair)]
    shown |= {key[2] for key in keys}
    if not shown.isdisjoint(quarantined):
        return "quarantined"
    if any(key not in known for key in keys):
        return "stale_contract"
    return _find_conversation_flaw(pair) if pair.get("task") in CONVERSATIONS else None


def _find_conversation_flaw(pair: Row) -> str | None:
    """Why a conversation cannot be learnt from: what the model says in it must be exactly the right
    calls, in order, and questions."""
    try:
        goldens = read_goldens(pair)
        turns = list_turns({"messages": make_messages(pair, goldens)})
    except (UnusableExample, ValueError, TypeError, KeyError, AttributeError):
        return "unreadable_conversation"
    made = [(call["name"], call["arguments"]) for turn in turns for call in turn.calls]
    asks = any(turn.asks for turn in turns)
    right = [(golden.tool, golden.arguments) for golden in goldens]
    wrong = made != right or asks != (pair["task"] in (MISSING, CLARIFY))
    return "conversation_differs" if wrong or bool(right) == (pair["task"] == MISSING) else None


def _list_gold_keys(pair: Row) -> list[Key]:
    if pair.get("calls") is None:
        return []
    return [
        (golden.server_id, golden.tool, golden.contract_digest) for golden in read_goldens(pair)
    ]


def _place_pair(pair: Row, places: Mapping[Key, Place], tally: Tally) -> Placed | None:
    """The pair at the place of the tools that it calls; None, and counted, where that is none."""
    own = places[pair["server_id"], pair["tool"], pair["contract_digest"]]
    calls = _make_calls(pair)
    talks = pair.get("task") in CONVERSATIONS
    keys = dict.fromkeys(_list_gold_keys(pair) or [own.key]) if calls or talks else ()
    golds = tuple(places[key] for key in keys)
    names = [place.contract["name"] for place in golds]
    leak = next((place for place in golds if place.leak), None)
    if leak:
        tally.count_drop(
            str(leak.leak), tool=list(leak.key), copy_of=leak.copy_of, split=leak.split
        )
    elif len({place.split for place in golds}) > 1:
        tally.count_drop("calls_both_sides")
    elif len(set(names)) < len(names):
        tally.count_drop("same_names")  # no prompt can show two tools of one name
    else:
        # A row of which no call is right learns nothing of its own tool, be that a copy or not.
        split = golds[0].split if golds else TRAIN if own.leak else own.split
        messages = make_messages(pair, read_goldens(pair)) if talks else []
        return Placed(pair, own, calls, golds, split, messages)
    return None


def _make_calls(pair: Row) -> list[dict[str, Any]]:
    if pair.get("calls") is not None:
        named = ("tool", "contract_digest", "arguments")
        goldens = [[getattr(golden, name) for name in named] for golden in read_goldens(pair)]
    else:
        held = pair["arguments"]
        held = json.loads(held) if isinstance(held, str) else held
        goldens = [] if held is None else [[pair["tool"], pair["contract_digest"], held]]
    return [{"name": n, "contract_digest": d, "arguments": a} for n, d, a in goldens]


def _hold_out_pairs(placed: Sequence[Placed], policy: SetPolicy) -> None:
    """Holds pairs of trained tools out by their hash; a tool keeps one call to learn from."""
    single: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for one in placed:
        if one.split == TRAIN:
            if compute_pair_draw(one.name) < policy.seen_tools:
                one.split = SEEN_TOOL
            if len(one.tools) == 1:
                single[next(iter(one.tools))].append(one)
    for own in single.values():
        if all(one.split == SEEN_TOOL for one in own):
            max(own, key=lambda one: (compute_pair_draw(one.name), one.name)).split = TRAIN
