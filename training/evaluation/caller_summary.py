"""Figures of two callers over the items that both answered: rates, drops, phantom calls, cost."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from training.caller.shipped import GENERAL, KEPT
from training.evaluation.caller_items import FRESH
from training.evaluation.caller_table import (
    ASK_BACK,
    NOT_OFFERED,
    PERTURBATIONS,
    PHANTOMS,
    UNPERTURBED,
)
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.retriever import NothingToEvaluate
from training.role import BASELINE
from training.sets.split import SPLITS, UNSEEN_SERVER
from warehouse.json_types import Row

Both = Sequence[tuple[Row, Row]]  # candidate's and incumbent's row of each item
Score = Callable[[Row], float]
MEASURES = ("parsed", "valid", "tool_ok", "name_f1", "value_f1", "ast_ok")
_ORDER = {split: place for place, split in enumerate(SPLITS)}
_NO_CALL_RIGHT = ("no_tool", NOT_OFFERED)


def summarise_calls(
    rows: Sequence[Row], candidate: str, incumbent: str = BASELINE
) -> dict[str, Any]:
    """Figures of both models over their common items (keys: see the modules that read them).

    n, servers, tools, chance and the measures at the top are those of the gate's cell: requests for
    servers never trained on, fewest candidates, both sorts of distractors.
    Raises NothingToEvaluate.
    """
    asked = [row for row in rows if row["distractors"] != KEPT]
    every, failures = _pair_answered_rows(asked, candidate, incumbent)
    if not every:
        raise NothingToEvaluate(
            f"caller {candidate[:12]}: no item that {incumbent[:24]} answered too"
            f" (without an answer: {failures or 'none'}); evaluate both on the same items"
        )
    plain = [two for two in every if is_plain(two[0])]
    head = _select_head(plain)
    measured = {name: _measure_both(head, name) for name in MEASURES}
    irrelevance, phantom = _measure_irrelevance(every), _measure_phantoms(every)
    return {
        "candidate": candidate,
        "incumbent": incumbent,
        "items": len(every),
        "n": len(head),
        "servers": len({ours["server_id"] for ours, _ in head}),
        "tools": len(set(_list_groups(head))),
        "chance": _compute_chance(head),
        "training_set": every[0][0]["training_set"],
        **measured,
        "gain": measured["ast_ok"]["gain"],
        "cells": _summarise_cells(plain),
        "irrelevance": irrelevance,
        "ask_back": _measure_both(_filter_pairs(every, task=ASK_BACK), "ast_ok"),
        "invariance": _measure_invariance(every),
        "phantom": phantom,
        "errors": _count_errors(ours for ours, _ in every),
        "failures": failures,
        "cost": {name: _average_costs([two[i] for two in every])
                 for i, name in enumerate(("candidate", "incumbent"))},
        "gate": {
            "gain": measured["ast_ok"]["gain"],
            "fresh": _measure_gain(_filter_pairs(plain, distractors=FRESH)),
            "fresh_nats": _measure_nats(_filter_pairs(plain, distractors=FRESH)),
            "kept_nats": _measure_kept(rows, candidate, incumbent),
            "since_shipped": _measure_since_shipped(asked, candidate, incumbent),
            "irrelevance": irrelevance["all"]["gain"],
            "phantom": phantom["all"]["gain"],
            "phantom_rate": phantom["all"]["candidate"],
        },
    }  # fmt: skip


def _measure_gain(both: Both) -> dict[str, float | int]:
    """The gain in right calls, with the shares of before and after and the number of tools."""
    measured = _measure_both(both, "ast_ok")
    shares = {"before": measured["incumbent"], "after": measured["candidate"]}
    tools = {"tools": len(set(_list_groups(both)))}
    return measured["gain"] | tools | {name: share["value"] for name, share in shares.items()}


def _measure_nats(both: Both) -> dict[str, float | int]:
    """The gain in the log-likelihood of right calls, where both models' was measured."""
    measured = [two for two in both if None not in (two[0].get("nats"), two[1].get("nats"))]
    return _measure_both(measured, "nats")["gain"] | {"tools": len(set(_list_groups(measured)))}


def _measure_kept(rows: Iterable[Row], candidate: str, incumbent: str) -> dict[str, float | int]:
    """Of requests that ship, against the caller that ships, where it was measured."""
    kept = [{**row, "failed": False} for row in rows if row["distractors"] == KEPT]
    first = GENERAL if any(row["model"] == GENERAL for row in kept) else incumbent
    return _measure_nats(_pair_answered_rows(kept, candidate, first)[0])


def _measure_since_shipped(rows: Iterable[Row], *both: str) -> dict[str, float | int]:
    """The candidate's gain in right calls over the caller that ships; n=0 where it is in `both`."""
    since = [] if GENERAL in both else _pair_answered_rows(rows, both[0], GENERAL)[0]
    return _measure_both(_select_head([two for two in since if is_plain(two[0])]), "ast_ok")["gain"]


def is_plain(row: Row) -> bool:
    """An item where a call is right and nothing was changed."""
    untouched = row["perturbation"] == UNPERTURBED and not row["phantom"]
    return untouched and row["task"] not in (*_NO_CALL_RIGHT, ASK_BACK)


def is_phantom_call(row: Row) -> float:
    """Whether a call names a tool that is not offered."""
    return float(row["known_calls"] < row["calls"])


def _select_head(plain: Both) -> list[tuple[Row, Row]]:
    """The gate's cell."""
    own = [two for two in plain if two[0]["distractors"] != FRESH]
    least = min((ours["candidates"] for ours, _ in own), default=0)
    return _filter_pairs(own, candidates=least, split=UNSEEN_SERVER)


def _pair_answered_rows(
    rows: Iterable[Row], candidate: str, incumbent: str
) -> tuple[list[tuple[Row, Row]], dict[str, dict[str, int]]]:
    answers: dict[str, dict[str, Row]] = {candidate: {}, incumbent: {}}
    for row in rows:
        if row["model"] in answers:
            answers[row["model"]][row["item_id"]] = row
    ours, theirs = answers[candidate], answers[incumbent]
    items = sorted(ours.keys() & theirs.keys())
    failures = {
        name: dict(Counter(str(row["error_kind"]) for row in of.values() if row["failed"]))
        for name, of in (("candidate", ours), ("incumbent", theirs))
    }
    both = [(ours[item], theirs[item]) for item in items]
    answered = [two for two in both if not two[0]["failed"] and not two[1]["failed"]]
    return answered, {name: counts for name, counts in failures.items() if counts}


def _measure_both(both: Both, score: Score | str) -> dict[str, dict[str, float | int]]:
    """Of a score of a row, or of a column."""
    groups = _list_groups(both)
    a, b = (
        [float(two[i][score]) if isinstance(score, str) else score(two[i]) for two in both]
        for i in (0, 1)
    )
    return {
        "candidate": bootstrap_mean(a, groups).as_dict(),
        "incumbent": bootstrap_mean(b, groups).as_dict(),
        "gain": bootstrap_difference(a, b, groups).as_dict(),
    }


def _list_groups(both: Both) -> list[str]:
    return [str(ours["text_digest"]) for ours, _ in both]


def _filter_pairs(both: Both, **columns: Any) -> list[tuple[Row, Row]]:
    return [two for two in both if all(two[0][name] == value for name, value in columns.items())]


def _compute_chance(both: Both) -> float:
    """The share of right tools that a blind choice among what is offered makes."""
    if not both:
        return 0.0
    return round(sum(1 / max(ours["offered"], 1) for ours, _ in both) / len(both), 4)


def _summarise_cells(plain: Both) -> list[dict[str, Any]]:
    names = ("split", "candidates", "distractors")
    keys = {tuple(ours[name] for name in names) for ours, _ in plain}
    out = []
    for key in sorted(keys, key=lambda key: (_ORDER.get(key[0], len(_ORDER)), *key)):
        cell = dict(zip(names, key, strict=True))
        both = _filter_pairs(plain, **cell)
        out.append(
            {
                **cell,
                "n": len(both),
                "servers": len({ours["server_id"] for ours, _ in both}),
                "tools": len(set(_list_groups(both))),
                "chance": _compute_chance(both),
                "offered": _compute_mean(ours["offered"] for ours, _ in both),
                "shown": _compute_mean(ours["shown"] for ours, _ in both),
                **{name: _measure_both(both, name) for name in MEASURES},
            }
        )
    return out


def _measure_irrelevance(every: Both) -> dict[str, Any]:
    """Whether no call is made where none is right, in all and by why none is."""
    without = [two for two in every if two[0]["task"] in _NO_CALL_RIGHT and not two[0]["phantom"]]
    by_task = {k: _measure_both(_filter_pairs(without, task=k), "ast_ok") for k in _NO_CALL_RIGHT}
    return {"all": _measure_both(without, "ast_ok"), **by_task}


def _measure_phantoms(every: Both) -> dict[str, Any]:
    """Calls of tools that are gone, in all and by how they went."""
    gone = [two for two in every if two[0]["phantom"]]
    by_kind = {k: _measure_both(_filter_pairs(gone, phantom=k), is_phantom_call) for k in PHANTOMS}
    return {"all": _measure_both(gone, is_phantom_call), **by_kind}


def _measure_invariance(every: Both) -> list[dict[str, Any]]:
    """Drops against the same items unchanged, paired within each model."""
    plain = {_make_place_key(ours): (ours, theirs) for ours, theirs in every if is_plain(ours)}
    out = []
    for kind in PERTURBATIONS:
        both = _filter_pairs(every, perturbation=kind)
        changed = [two for two in both if _make_place_key(two[0]) in plain]
        groups = _list_groups(changed)
        for measure in ("ast_ok", "tool_ok"):
            drops = [
                bootstrap_difference(
                    [float(plain[_make_place_key(two[0])][i][measure]) for two in changed],
                    [float(two[i][measure]) for two in changed],
                    groups,
                ).as_dict()
                for i in (0, 1)
            ]
            head = {"perturbation": kind, "measure": measure, "n": len(changed)}
            out.append({**head, "drop_candidate": drops[0], "drop_incumbent": drops[1]})
    return out


def _make_place_key(row: Row) -> tuple[Any, ...]:
    names = ("pair_id", "split", "candidates", "distractors", "seed")
    return tuple(row[name] for name in names)


def _count_errors(rows: Iterable[Row]) -> dict[str, int]:
    kinds = Counter(str(row["error_kind"]) for row in rows if not row["ast_ok"])
    return dict(kinds.most_common())


def _average_costs(rows: Sequence[Row]) -> dict[str, float | int]:
    """Means per item."""
    names = ("prompt_tokens", "completion_tokens", "seconds", "usd")
    return {"n": len(rows)} | {
        name: _compute_mean(cost for row in rows if (cost := row.get(name)) is not None)
        for name in names
    }


def _compute_mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return round(sum(numbers) / len(numbers), 6) if numbers else 0.0
