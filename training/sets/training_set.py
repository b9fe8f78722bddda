"""The training set: contracts -> places (split, leaks of tools) -> pairs at their places -> without
leaks of requests -> rows with negatives, and the pool that prompts are drawn from."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.columns import read_table_spec
from assets.contracts.tool_id import ToolId
from assets.synthesis.export.examples import UnusableExample, make_messages
from assets.synthesis.tables import (
    CLARIFY,
    MISSING,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    TASKS,
    TRACE,
    TRAJECTORY,
    read_goldens,
)
from assets.vectors.index import digest_text
from training.prompts.render import list_turns
from training.sets.pool import add_negatives
from training.sets.set_audit import build_manifest
from training.sets.split import (
    SEEN_TOOL,
    TRAIN,
    Embed,
    Key,
    SetPolicy,
    SplitPlace,
    assign_places,
    build_pool,
    compute_pair_draw,
    find_near_pairs,
    make_cached_embed,
)
from warehouse.json_types import Row

# What is no request and one answer: several turns, or an answer that is a question.
CONVERSATIONS = (SEQUENTIAL, MISSING, CLARIFY, RECOVERY, TRAJECTORY)
_EVOLVED = "evolve"  # the step of a receipt


@dataclass
class PlacedRow:
    """A pair with the places of the tools that it is about, its own first: those it calls, or the
    one that it asks back about. `messages`: of a task that is a conversation."""

    pair: Row
    own: SplitPlace
    calls: list[dict[str, Any]]
    golds: tuple[SplitPlace, ...]
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
class SplitTally:
    """Why pairs are left out, how many, and the first examples of each leak."""

    dropped: Counter[str] = field(default_factory=Counter)
    leaks: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def count_drop(self, why: str, **example: Any) -> None:
        self.dropped[why] += 1
        if example:
            self.leaks[why].append(example)


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
    """Why a conversation is not learnt: the model must say the right calls and questions alone."""
    try:
        goldens = read_goldens(pair)
        turns = list_turns({"messages": make_messages(pair, goldens)})
    except (UnusableExample, ValueError, TypeError, KeyError, AttributeError):
        return "unreadable_conversation"
    calls_made = [(call["name"], call["arguments"]) for turn in turns for call in turn.calls]
    asks = any(turn.asks for turn in turns)
    right = [(golden.tool, golden.arguments) for golden in goldens]
    wrong = calls_made != right or asks != (pair["task"] in (MISSING, CLARIFY))
    return "conversation_differs" if wrong or bool(right) == (pair["task"] == MISSING) else None


def _list_gold_keys(pair: Row) -> list[Key]:
    if pair.get("calls") is None:
        return []
    return [
        (golden.server_id, golden.tool, golden.contract_digest) for golden in read_goldens(pair)
    ]


def _place_pair(pair: Row, places: Mapping[Key, SplitPlace], tally: SplitTally) -> PlacedRow | None:
    """The pair at the place of the tools that it calls; None, and counted, where that is none."""
    own = places[pair["server_id"], pair["tool"], pair["contract_digest"]]
    if pair.get("calls") is not None:
        named = ("tool", "contract_digest", "arguments")
        goldens = [[getattr(golden, name) for name in named] for golden in read_goldens(pair)]
    else:
        arguments = pair["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        goldens = [] if arguments is None else [[pair["tool"], pair["contract_digest"], arguments]]
    calls = [{"name": n, "contract_digest": d, "arguments": a} for n, d, a in goldens]
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
        if split != TRAIN and pair.get("basis") == TRACE:
            tally.count_drop("traced_outside_train")  # no user is on both sides
            return None
        messages = make_messages(pair, read_goldens(pair)) if talks else []
        return PlacedRow(pair, own, calls, golds, split, messages)
    return None


def _hold_out_pairs(placed: Sequence[PlacedRow], policy: SetPolicy) -> None:
    """Holds pairs of trained tools out by their hash; a tool keeps one call to learn from."""
    single: dict[tuple[str, str], list[PlacedRow]] = defaultdict(list)
    for row in placed:
        if row.split == TRAIN and row.pair.get("basis") != TRACE:
            if compute_pair_draw(row.name) < policy.seen_tools:
                row.split = SEEN_TOOL
            if len(row.tools) == 1:
                single[next(iter(row.tools))].append(row)
    for pairs in single.values():
        if all(item.split == SEEN_TOOL for item in pairs):
            max(pairs, key=lambda item: (compute_pair_draw(item.name), item.name)).split = TRAIN


LEAK_REQUEST = "leak_instruction"


def remove_leaks(
    placed: Sequence[PlacedRow], embed: Embed, policy: SetPolicy, tally: SplitTally
) -> list[PlacedRow]:
    """`placed` without train copies of tested requests, or held-out pairs of tools then not learnt;
    a tool's last training pair stays, and the held-out copy goes."""
    tested = [item for item in placed if item.split not in (TRAIN, SEEN_TOOL)]
    remaining = _remove_train_copies(placed, _group_by_request(tested), embed, policy, tally)
    remaining = _remove_seen_requests(remaining, embed, policy, tally)
    trained = {tool for item in remaining if item.split == TRAIN for tool in item.tools}
    results = []
    for row in remaining:
        if row.split == SEEN_TOOL and not row.subjects <= trained:
            tally.count_drop("untrained_tool")
        else:
            results.append(row)
    return results


def _remove_train_copies(
    placed: Sequence[PlacedRow],
    tested: dict[str, list[PlacedRow]],
    embed: Embed,
    policy: SetPolicy,
    tally: SplitTally,
) -> list[PlacedRow]:
    learnt = [item.request for item in placed if item.split == TRAIN]
    near_pairs = find_near_pairs(learnt, list(tested), embed, policy.near_cosine)
    results = []
    for row in placed:
        if row.split == TRAIN and row.request in near_pairs:
            _record_leak(tally, row, tested[near_pairs[row.request][0]][0])
        else:
            results.append(row)
    return results


def _remove_seen_requests(
    placed: Sequence[PlacedRow], embed: Embed, policy: SetPolicy, tally: SplitTally
) -> list[PlacedRow]:
    seen_rows = _group_by_request(item for item in placed if item.split == SEEN_TOOL)
    learnt = [item for item in placed if item.split == TRAIN]
    near_pairs = find_near_pairs(
        [item.request for item in learnt], list(seen_rows), embed, policy.near_cosine
    )
    counts = Counter(tool for item in learnt for tool in item.tools)
    gone: set[str] = set()
    for row in learnt:
        copies = [each for text in near_pairs.get(row.request, ()) for each in seen_rows[text]]
        copies = [each for each in copies if each.name not in gone]
        if not copies:
            continue
        if any(counts[tool] < 2 for tool in row.tools):
            for copy in copies:
                gone.add(copy.name)
                _record_leak(tally, copy, row)
        else:
            gone.add(row.name)
            counts.subtract(row.tools)
            _record_leak(tally, row, copies[0])
    return [item for item in placed if item.name not in gone]


def _group_by_request(placed: Iterable[PlacedRow]) -> dict[str, list[PlacedRow]]:
    result: dict[str, list[PlacedRow]] = defaultdict(list)
    for item in placed:
        result[item.request].append(item)
    return result


def _record_leak(tally: SplitTally, gone: PlacedRow, stays: PlacedRow) -> None:
    tally.count_drop(
        LEAK_REQUEST, pair=gone.name, split=gone.split, like=stays.name, beside=stays.split
    )


TRAINING_SET = read_table_spec(__file__, "training_set")


@dataclass(frozen=True)
class TrainingSet:
    """Rows of TRAINING_SET, what was left out and why, the contracts known at the time, the pool of
    contracts that prompts may show (digest -> {server_id, tool, contract, split, twins})."""

    rows: list[dict[str, Any]]
    dropped: dict[str, int]
    contracts: dict[str, str]  # "<server_id>::<tool>" -> contract digest
    pool: dict[str, dict[str, Any]] = field(default_factory=dict)
    leaks: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    policy: SetPolicy = field(default_factory=SetPolicy)


def build_training_set(
    pairs: Sequence[Row],
    contracts: Iterable[Row],
    embed: Embed,
    policy: SetPolicy | None = None,
    held: Collection[Key] = (),
    hard: Mapping[str, Sequence[str]] | None = None,
    *,
    embed_requests: Embed | None = None,
    twins: Collection[tuple[str, str]] = (),
    same: Mapping[str, Collection[str]] | None = None,
) -> TrainingSet:
    """The set of accepted `pairs` and current snapshot rows. `embed`, `embed_requests`: unit
    vectors by the *base*. `held`: (server, tool, digest) of what is kept out everywhere. `hard`:
    digest -> digests taken for it, worst first. `twins`: pairs of digests of one tool. `same`:
    server -> all its ids, on one side."""
    policy, tally = policy or SetPolicy(), SplitTally()
    embed = make_cached_embed(embed)
    current = {(row["server_id"], row["tool"], row["contract_digest"]): row for row in contracts}
    quarantined = {name for _, _, name in held}
    clear = {key: row for key, row in current.items() if key[2] not in quarantined}
    places = assign_places(clear, embed, policy, twins, same)
    pool = build_pool(places)
    whole_places, placed = set(places), list[PlacedRow]()
    for pair in sorted(pairs, key=lambda row: row["pair_id"]):
        why = _find_unusable_reason(pair, whole_places, quarantined)
        if why:
            tally.count_drop(why)
        elif (row := _place_pair(pair, places, tally)) is not None:
            placed.append(row)
    _hold_out_pairs(placed, policy)
    placed = remove_leaks(placed, make_cached_embed(embed_requests or embed), policy, tally)
    rows = _make_rows(placed, pool, tally)
    add_negatives(rows, pool, embed, policy, hard or {}, twins)
    known = {str(ToolId(server, tool)): name for server, tool, name in sorted(current)}
    dropped = dict(sorted(tally.dropped.items()))
    return TrainingSet(rows, dropped, known, pool, dict(sorted(tally.leaks.items())), policy)


def make_set_manifest(
    made: TrainingSet,
    name: str,
    *,
    embedder: str,
    lance_version: int | None,
    lance_tag: str | None = None,
) -> dict[str, Any]:
    """What the set was made of, as JSON: splits, tasks, leaks, digests of all rows."""
    return build_manifest(
        made.rows,
        made.policy,
        dropped=made.dropped,
        leaks=made.leaks,
        contracts=made.contracts,
        training_set=name,
        embedder=embedder,
        lance_version=lance_version,
        lance_tag=lance_tag,
        pool={"contracts": len(made.pool), "train": sum(_is_learnt(e) for e in made.pool.values())},
    )


def _make_rows(
    placed: Iterable[PlacedRow], pool: Mapping[str, Mapping[str, Any]], tally: SplitTally
) -> list[dict[str, Any]]:
    """Rows without negatives; a choice among tools that its split may not show is left out."""
    rows = []
    for item in placed:
        offered = json.loads(item.pair.get("offered") or "[]")
        shown = [n for n in offered if n in pool and (item.split != TRAIN or _is_learnt(pool[n]))]
        if not item.golds and not shown:
            tally.count_drop("nothing_offered")
        else:
            rows.append(_make_row(item, shown))
    return rows


def _make_row(placed: PlacedRow, offered: Sequence[str]) -> dict[str, Any]:
    copied = ("pair_id", "server_id", "tool", "contract_digest", "instruction")
    place, pair = placed.own, placed.pair
    return {
        **{name: pair[name] for name in copied},
        "split": placed.split,
        "task": placed.task,
        "kind": pair.get("kind"),
        "contract": json.dumps(place.contract, sort_keys=True, ensure_ascii=False),
        "arguments": _to_json_text(placed.calls[0]["arguments"]) if placed.calls else None,
        "calls": _to_json_text(placed.calls),
        "messages": _to_json_text(placed.messages) if placed.messages else None,
        "offered": _to_json_text(offered),
        "evolved": placed.evolved,
        "positive": place.text if placed.calls else None,
        "text_digest": digest_text(place.text),
        "negatives": "[]",
        "provider": pair.get("provider"),
        "license": pair.get("license"),
    }


def _is_learnt(entry: Mapping[str, Any]) -> bool:
    return entry["split"] == TRAIN


def _to_json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
