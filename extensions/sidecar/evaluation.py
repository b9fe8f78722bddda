"""Measuring a sidecar: drafts of servers never trained on, by what comes of them.

draft          the draft as it is
ladder         the repair ladder alone
NAME           the ladder, and the sidecar NAME where it asks a model
NAME:alone     the sidecar alone, on the draft as it was sent
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from assets.columns import read_table_spec
from assets.contracts.rename_history import ContractHistory
from assets.contracts.validate import validate_call
from extensions.sidecar.flaws import HELD_OUT
from extensions.sidecar.prompt import RIGHT, UNTOUCHED, RevisionRow, make_revision_request
from extensions.sidecar.revision_data import Messages, is_right, try_ladder
from extensions.sidecar.settings import LADDER
from serving.repair.ladder import repair_draft
from serving.repair.rungs import ABSTAINED
from serving.repair.tools import (
    ProposedCall,
    RepairToolset,
    ReviseCall,
    RevisionRequest,
    ToolCandidate,
)
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.retriever import NothingToEvaluate
from training.figures import format_interval, shorten_model
from training.sets.split import UNSEEN_SERVER
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, make_markdown_table, quote_text

DRAFT, ALONE = "draft", ":alone"
SIDECAR_EVALUATION = read_table_spec(__file__, "sidecar_evaluation")
Called = Mapping[str, Any] | None  # {name, arguments}; None: asked


class RevisingModel(Protocol):
    def revise_requests(self, requests: Sequence[RevisionRequest]) -> list[ProposedCall | None]: ...


def evaluate_sidecars(
    rows: Sequence[RevisionRow],
    models: Mapping[str, RevisingModel],
    training_set: str,
    history: ContractHistory,
) -> list[dict[str, Any]]:
    """Rows of SIDECAR_EVALUATION: every arm on every row. models: name -> a sidecar."""
    arms: dict[str, list[Called]] = {
        DRAFT: [_take_draft(row) for row in rows],
        LADDER: [_try_row(row, history, None) for row in rows],
    }
    for name, model in models.items():
        arms[name] = _try_with(rows, history, model)
        alone = model.revise_requests(list(map(make_revision_request, rows)))
        arms[name + ALONE] = list(map(_take_proposed, rows, alone))
    return [
        {"model": arm, **judge_call(row, called), "training_set": training_set}
        for arm, answers in arms.items()
        for row, called in zip(rows, answers, strict=True)
    ]


def judge_call(row: RevisionRow, called: Called) -> dict[str, Any]:
    right = row.right[0] if row.right else None
    schemas = {str(contract["name"]): contract for contract in row.contracts}
    draft = _take_draft(row)
    contract = schemas.get(str(called["name"])) if called else None
    return {
        "item_id": row.row_id,
        "split": row.split,
        "server_id": row.server_id,
        "tool": right["name"] if right else "",
        "kind": row.kind,
        "new_kind": row.kind in HELD_OUT,
        "source": row.source,
        "ladder": row.ladder,
        "called": _write_json(called),
        "expected": _write_json(right),
        "valid": bool(called and contract and not validate_call(contract, called["arguments"])),
        "right": _is_meant(row, called),
        "copied": called is not None and _write_json(called) == _write_json(draft),
        "asked": called is None,
        "was_right": row.kind == UNTOUCHED,
    }


def _is_meant(row: RevisionRow, called: Called) -> bool:
    if not row.right or called is None:
        return not row.right and called is None
    schemas = {str(contract["name"]): contract["inputSchema"] for contract in row.contracts}
    return is_right(called, row.right[0], schemas.get(str(row.right[0]["name"]), {}))


def _take_draft(row: RevisionRow) -> Called:
    return {"name": row.draft_name, "arguments": row.draft_arguments}


def _take_proposed(row: RevisionRow, proposed: ProposedCall | None) -> Called:
    """What a model proposes; where it says nothing, the draft."""
    if proposed is None:
        return _take_draft(row)
    if proposed.question:
        return None
    return {"name": proposed.name, "arguments": proposed.arguments}


def _try_with(
    rows: Sequence[RevisionRow], history: ContractHistory, model: RevisingModel
) -> list[Called]:
    """The ladder with a model: what it would ask is answered all at once."""
    requests: dict[str, RevisionRequest] = {}
    for row in rows:
        outcome = try_ladder(*_list_parts(row), history)
        if outcome.asks:
            requests[row.row_id] = outcome.request
    answers = dict(zip(requests, model.revise_requests(list(requests.values())), strict=True))
    return [_try_row(row, history, lambda request, at=row.row_id: answers.get(at)) for row in rows]


def _list_parts(row: RevisionRow) -> tuple[str, Any, RepairToolset, Messages]:
    tools = RepairToolset(
        tuple(ToolCandidate(str(contract["name"]), contract) for contract in row.contracts)
    )
    return row.draft_name, row.draft_arguments, tools, row.conversation


def _try_row(row: RevisionRow, history: ContractHistory, revise: ReviseCall | None) -> Called:
    name, arguments, tools, conversation = _list_parts(row)
    draft = {"name": name, "arguments": arguments}
    report = repair_draft(draft, tools, conversation=conversation, history=history, revise=revise)
    if report.outcome == ABSTAINED:
        return None
    return {"name": report.name, "arguments": json.loads(report.text)}


def _write_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)


Figures = dict[str, Any]
Test = Callable[[Row], bool]


def _has_call(row: Row) -> bool:
    return bool(row["tool"])


def _is_flawed(row: Row) -> bool:
    return _has_call(row) and not row["was_right"]


def _is_right(row: Row) -> bool:
    return row["right"]


# name -> (which items it is of, what is counted)
MEASURES: dict[str, tuple[Test, Test]] = {
    "right": (lambda _: True, _is_right),
    "corrected": (_is_flawed, _is_right),
    "corrected_left": (lambda row: _is_flawed(row) and row["ladder"] != RIGHT, _is_right),
    "corrected_new_kinds": (lambda row: _is_flawed(row) and row["new_kind"], _is_right),
    "copied": (_is_flawed, lambda row: row["copied"]),
    "harmed": (lambda row: row["was_right"], lambda row: not row["right"]),
    "valid": (_has_call, lambda row: row["valid"]),
    "asked": (_has_call, lambda row: row["asked"]),
    "asked_rightly": (lambda row: not _has_call(row), _is_right),
}


def summarise_sidecar(
    rows: Sequence[Row], candidate: str, incumbent: str = LADDER
) -> dict[str, Any]:
    """{candidate, incumbent, n, tools, servers, drawn_over, arms: {arm: {measure: figure}}, gain,
    kept, MEASURE: {candidate, incumbent}} on servers never trained on; figures {value, low, high,
    n}. `gain`: of what is right; `kept`: of calls right before. Raises NothingToEvaluate."""
    unseen = [row for row in rows if row["split"] == UNSEEN_SERVER]
    arms: dict[str, list[Row]] = {}
    for row in sorted(unseen, key=lambda row: row["item_id"]):
        arms.setdefault(row["model"], []).append(row)
    if candidate not in arms or incumbent not in arms:
        names = ", ".join(name[:12] for name in arms) or "none"
        raise NothingToEvaluate(
            f"no drafts of unseen servers for {candidate[:12]} and {incumbent[:12]}: found {names};"
            " more servers, or more pairs of them, are needed"
        )
    answers, figures = arms[candidate], {name: _measure_arm(of) for name, of in arms.items()}
    return {
        **{
            name: {"candidate": figures[candidate][name], "incumbent": figures[incumbent][name]}
            for name in MEASURES
        },
        "candidate": candidate,
        "incumbent": incumbent,
        "n": len(answers),
        "tools": len({(row["server_id"], row["tool"]) for row in answers}),
        "servers": len({row["server_id"] for row in answers}),
        "drawn_over": "servers",
        "arms": figures,
        "gain": _measure_gain(answers, arms[incumbent], lambda _: True),
        "kept": _measure_gain(answers, arms[incumbent], lambda row: row["was_right"]),
    }


def _measure_arm(rows: Sequence[Row]) -> Figures:
    figures = {}
    for name, (is_counted, holds) in MEASURES.items():
        counted = [row for row in rows if is_counted(row)]
        values = [float(holds(row)) for row in counted]
        figures[name] = bootstrap_mean(values, [row["server_id"] for row in counted]).as_dict()
    return figures


def _measure_gain(new: Sequence[Row], old: Sequence[Row], is_counted: Test) -> Figures:
    pairs = [pair for pair in zip(new, old, strict=True) if is_counted(pair[0])]
    better, worse = ([float(pair[side]["right"]) for pair in pairs] for side in (0, 1))
    return bootstrap_difference(better, worse, [row["server_id"] for row, _ in pairs]).as_dict()


def render_arms_table(summary: Figures) -> Markdown:
    rows = [
        (
            quote_text(shorten_model(arm.removesuffix(ALONE)) + ALONE * arm.endswith(ALONE)),
            *(f"{format_interval(of)} ({of['n']})" if of["n"] else "-" for of in figures.values()),
        )
        for arm, figures in summary["arms"].items()
    ]
    return make_markdown_table(["arm", *MEASURES], rows)
