"""The training set: accepted pairs, each in its split, with hard negatives and the pool of tools.

contracts -> places (split, leaks of tools) -> pairs at their places -> without leaks of
requests -> rows with negatives, and the pool that prompts are drawn from
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from assets.columns import CONTRACT_DIGEST, KIND, PAIR_ID, SERVER_ID, TOOL
from assets.contracts.tool_id import ToolId
from assets.synthesis.tables import TASKS, TRAJECTORY
from assets.vectors.index import digest_text
from training.sets.assignment import Key, assign_places, build_pool, find_first_run_dates
from training.sets.audit.manifest import build_manifest
from training.sets.audit.tokens import compute_token_statistics
from training.sets.leaks import remove_leaks
from training.sets.near import Embed, make_cached_embed
from training.sets.negatives import add_negatives
from training.sets.policy import SetPolicy
from training.sets.select import Placed, Tally, place_pairs
from training.sets.split import SPLITS, TRAIN
from warehouse.json_types import Row
from warehouse.storage.tables import TableSpec

TRAINING_SET = TableSpec(
    name="training_set",
    key=("pair_id",),
    columns={
        "pair_id": PAIR_ID,
        "server_id": SERVER_ID,
        "tool": TOOL,
        "split": (pl.String, f"one of {', '.join(SPLITS)}"),
        "task": (pl.String, f"one of {', '.join((*TASKS, TRAJECTORY))}"),
        "kind": KIND,
        "contract_digest": CONTRACT_DIGEST,
        "contract": (pl.String, "canonical JSON"),
        "instruction": (pl.String, "the first thing the user says"),
        "arguments": (pl.String, "JSON object; null where no call is right"),
        "calls": (
            pl.String,
            "JSON list of {name, contract_digest, arguments}; [] if none is right",
        ),
        "messages": (
            pl.String,
            "JSON list of the whole conversation as exports have it: `weight` 0 where nothing is"
            " to be learnt; null where the row is a request and its answer",
        ),
        "offered": (pl.String, "JSON list: what it was written beside, as its split may show"),
        "evolved": (pl.Boolean, "whether its request was made harder after it was written"),
        "positive": (pl.String, "the tool's text; null where no call is right"),
        "text_digest": (pl.String, "of the tool's text, whether or not a call is right"),
        "negatives": (pl.String, "JSON list of contract digests, the worst confused first"),
        "first_seen": (pl.String, "UTC date of the server's first run; null: not known"),
        "provider": (pl.String, 'of the generator: "offline", or the endpoint\'s host'),
        "license": (pl.String, "of the source"),
    },
    schema_version=3,
)


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
    first_seen: Mapping[str, str | None] | None = None,
    same: Mapping[str, Collection[str]] | None = None,
) -> TrainingSet:
    """The set made of accepted `pairs` and the current snapshot rows.

    `embed` and `embed_requests` return unit vectors of texts by the *base* embedder. `held`: what
    the firewall keeps out, as (server, tool, contract digest): nothing of it is embedded or shown.
    `hard`: contract digest -> digests of the tools that are taken for it, the worst first. `twins`:
    pairs of digests that are known to be one tool. `first_seen`: server -> UTC date of its first
    run, where more is known than the rows say. `same`: server -> all ids of that server, which
    stand on one side.
    """
    policy, tally = policy or SetPolicy(), Tally()
    embed = make_cached_embed(embed)
    current = {(row["server_id"], row["tool"], row["contract_digest"]): row for row in contracts}
    quarantined = {name for _, _, name in held}
    clear = {key: row for key, row in current.items() if key[2] not in quarantined}
    first = {**find_first_run_dates(clear.values()), **(first_seen or {})}
    places = assign_places(clear, first, embed, policy, twins, same)
    pool = build_pool(places)
    placed = place_pairs(pairs, places, quarantined, policy, tally)
    placed = remove_leaks(placed, make_cached_embed(embed_requests or embed), policy, tally)
    rows = _make_rows(placed, pool, first, tally)
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
    """What the set was made of, as JSON: splits, tasks, leaks, tokens, digests of all rows."""
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
        tokens=compute_token_statistics(made.rows, made.pool),
    )


def _make_rows(
    placed: Iterable[Placed],
    pool: Mapping[str, Mapping[str, Any]],
    first: Mapping[str, str | None],
    tally: Tally,
) -> list[dict[str, Any]]:
    """Rows without negatives. One that was to choose among tools, none of which its split may show,
    is left out."""
    rows = []
    for one in placed:
        offered = json.loads(one.pair.get("offered") or "[]")
        shown = [n for n in offered if n in pool and (one.split != TRAIN or _is_learnt(pool[n]))]
        if not one.golds and not shown:
            tally.count_drop("nothing_offered")
        else:
            rows.append(_make_row(one, shown, first))
    return rows


def _make_row(
    one: Placed, offered: Sequence[str], first: Mapping[str, str | None]
) -> dict[str, Any]:
    copied = ("pair_id", "server_id", "tool", "contract_digest", "instruction")
    own, pair = one.own, one.pair
    return {
        **{name: pair[name] for name in copied},
        "split": one.split,
        "task": one.task,
        "kind": pair.get("kind"),
        "contract": json.dumps(own.contract, sort_keys=True, ensure_ascii=False),
        "arguments": _to_json_text(one.calls[0]["arguments"]) if one.calls else None,
        "calls": _to_json_text(one.calls),
        "messages": _to_json_text(one.messages) if one.messages else None,
        "offered": _to_json_text(offered),
        "evolved": one.evolved,
        "positive": own.text if one.calls else None,
        "text_digest": digest_text(own.text),
        "negatives": "[]",
        "first_seen": first.get(pair["server_id"]),
        "provider": pair.get("provider"),
        "license": pair.get("license"),
    }


def _is_learnt(entry: Mapping[str, Any]) -> bool:
    return entry["split"] == TRAIN


def _to_json_text(held: Any) -> str:
    return json.dumps(held, ensure_ascii=False)
