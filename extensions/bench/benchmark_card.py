"""The card of a benchmark's run: figures with intervals, what was asked, contamination, cost."""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from extensions.bench.benchmark_items import BenchmarkPlan, BenchmarkSet
from extensions.bench.contamination import Embed, check_against_training
from training.evaluation.caller_items import CallerItem
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.figures import format_counts, format_interval, format_table
from training.prompts.render import NO_CALL, SYSTEM
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, escape_markdown, fill_markdown
from warehouse.storage.digest import digest
from warehouse.storage.files import write_atomically
from warehouse.store import Warehouse

_MEANS = (
    *("tool_tokens", "prompt_tokens", "completion_tokens", "turns", "searches"),
    *("first_ok", "among_5", "name_f1", "value_f1"),
)
_FEW = 5  # groups, below which an interval means little


def describe_benchmark(
    held: BenchmarkSet,
    items: Sequence[CallerItem],
    plan: BenchmarkPlan,
    inspect_version: str,
    epochs: int,
) -> dict[str, Any]:
    """What was asked: the part of a card that all models of a run share."""
    asked = [[item.item_id, item.instruction, item.before, item.tools] for item in items]
    return {
        "benchmark": held.name,
        "versions": {
            "toolmill": version("toolmill"),
            "inspect_ai": inspect_version,
            "python": platform.python_version(),
            "data": held.hash_files(),
        },
        "prompts": digest([SYSTEM, NO_CALL, asked]),
        "items": len(items),
        "of_items": len(held.items),
        "left_out": dict(held.left_out),
        "groups": len({str(item.row["server_id"]) for item in items}),
        "candidates": plan.candidates if held.narrows else "the benchmark's own",
        "seed": plan.seed,
        "epochs": epochs,
        "options": dict(plan.options),
    }


def find_repeated(
    warehouse: Warehouse, items: Sequence[CallerItem], name: str, embed: Embed | None
) -> tuple[dict[str, Any], frozenset[str]]:
    """(what of the requests and the contracts stands in our training set, ids of items that are
    clean by both)."""
    texts = [item.instruction for item in items]
    by_request, requests = check_against_training(warehouse, texts, f"{name}, requests", embed)
    right = {
        tool_text(tool): None
        for item in items
        for tool in item.tools
        if tool["name"] in {call["name"] for call in item.expected}
    }
    by_contract, contracts = check_against_training(
        warehouse, list(right), f"{name}, contracts", column="positive"
    )
    known = {text for text, clean in zip(right, by_contract.clean, strict=True) if not clean}
    clean = frozenset(
        item.item_id
        for item, is_clean in zip(items, by_request.clean, strict=True)
        if is_clean and not known.intersection(map(tool_text, item.tools))
    )
    return {"requests": requests, "contracts": contracts}, clean


def summarise_model(
    rows: Sequence[Row], measures: Sequence[str], clean: frozenset[str], against: Sequence[Row] = ()
) -> dict[str, Any]:
    """Figures of one model over the items that it answered, in all and by category, and of the
    clean ones; the paired difference of the first measure to another model's rows."""
    answered = [row for row in rows if not row["failed"]]
    spent = [row["seconds"] for row in answered if row["seconds"] is not None]
    theirs = {(row["item_id"], row["epoch"]): row for row in against if not row["failed"]}
    paired = [row for row in answered if (row["item_id"], row["epoch"]) in theirs]
    facts = {
        "asked": len(rows),
        "answered": len(answered),
        "failures": dict(Counter(str(row["error"]) for row in rows if row["failed"])),
        "measures": {name: _measure(answered, name) for name in measures},
        "clean": {
            name: _measure([row for row in answered if row["item_id"] in clean], name)
            for name in measures
        },
        "categories": {
            category: {
                name: _measure([row for row in answered if row["category"] == category], name)
                for name in measures
            }
            for category in sorted({row["category"] for row in answered})
        },
        "errors": dict(
            Counter(
                str(row["error_kind"]) for row in answered if not row[measures[0]]
            ).most_common()
        ),
        "means": {name: mean for name in _MEANS if (mean := _average(answered, name)) is not None},
        "cost": {
            "usd": round(sum(row["usd"] for row in rows), 6),
            "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
            "completion_tokens": sum(row["completion_tokens"] for row in rows),
            "seconds_per_100": round(100 * sum(spent) / len(spent), 1) if spent else None,
            "timed": len(spent),
        },
    }
    if against:
        facts["difference"] = bootstrap_difference(
            [float(row[measures[0]]) for row in paired],
            [float(theirs[row["item_id"], row["epoch"]][measures[0]]) for row in paired],
            [row["group"] for row in paired],
        ).as_dict()
    return facts


def measure_alignment(
    rows: Sequence[Row], items: Sequence[CallerItem], embed: Embed
) -> dict[str, dict[str, float | int]]:
    """Cosine to the text of the right tool: of the user's words (`query`), of what the model asked
    for (`request`), and the paired difference over the items where it asked (MCP-Zero, equations 4
    to 6)."""
    right = {
        item.item_id: next(tool_text(tool) for tool in item.tools if tool["name"] == call["name"])
        for item in items
        for call in item.expected[:1]
    }
    wanted = [row for row in rows if row["item_id"] in right]
    texts = [
        text
        for row in wanted
        for text in (right[row["item_id"]], row["request"], row.get("asked_for") or row["request"])
    ]
    vectors = embed(texts).reshape(len(wanted), 3, -1) if wanted else np.empty((0, 3, 1))
    scored = [
        {**row, "query": float(of[0] @ of[1]), "requested": float(of[0] @ of[2])}
        for row, of in zip(wanted, vectors, strict=True)
    ]
    asked = [row for row in scored if row.get("asked_for")]
    figures = {"query": _measure(scored, "query"), "request": _measure(asked, "requested")}
    gains = [{**row, "gain": row["requested"] - row["query"]} for row in asked]
    return {**figures, "difference": _measure(gains, "gain")}


def _measure(rows: Sequence[Row], name: str) -> dict[str, float | int]:
    """Whole groups are drawn."""
    return bootstrap_mean(
        [float(row[name]) for row in rows], [row["group"] for row in rows]
    ).as_dict()


def _average(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return round(sum(values) / len(values), 4) if values else None


def write_card(out: Path, card: Mapping[str, Any], rows: Sequence[Row]) -> list[Path]:
    """`card.json`, `card.md`, `items.jsonl` (a row a model, item and epoch)."""
    out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    page = "\n".join(render_card(card)) + "\n"
    texts = {
        "card.json": json.dumps(card, indent=1, ensure_ascii=False),
        "card.md": page,
        "items.jsonl": lines,
    }
    for name, text in texts.items():
        write_atomically(out / name, text.encode("utf-8", "backslashreplace"))
    return [out / name for name in texts]


def render_card(card: Mapping[str, Any]) -> Iterator[Markdown]:
    """The lines of a page."""
    models, empty = card["models"], Markdown("")
    measures = list(models[0]["measures"])
    yield fill_markdown("# {}", card["benchmark"])
    yield empty
    few = " (too few for an interval)" if card["groups"] < _FEW else ""
    yield fill_markdown(
        "Items: {} of {}; epochs: {}; seed {}; tools offered: {}. Intervals: 95%, whole groups"
        " drawn; groups: {}{}.",
        card["items"], card["of_items"], card["epochs"], card["seed"], card["candidates"],
        card["groups"], few,
    )  # fmt: skip
    versions = ", ".join(f"{name} {value[:16]}" for name, value in card["versions"].items())
    yield fill_markdown("Versions: {}; prompts {}.", versions, card["prompts"][:16])
    yield empty
    head = ["model", "n", *measures, f"{measures[0]}, clean", "less the first model",
            "no answer", "s per 100", "USD"]  # fmt: skip
    rows = [
        [
            model["model"],
            model["answered"],
            *(format_interval(model["measures"][name]) for name in measures),
            format_interval(model["clean"][measures[0]]),
            format_interval(model.get("difference"), signed=True),
            sum(model["failures"].values()),
            "" if (took := model["cost"]["seconds_per_100"]) is None else f"{took:,.1f}",
            f"{model['cost']['usd']:.4f}",
        ]
        for model in models
    ]
    yield from format_table(head, rows)
    categories = list(dict.fromkeys(name for model in models for name in model["categories"]))
    if len(categories) > 1:
        yield empty
        cells = [
            [category, model["model"], figures["n"], format_interval(figures)]
            for category in categories
            for model in models
            if (figures := model["categories"].get(category, {}).get(measures[0]))
        ]
        yield from format_table(["category", "model", "n", measures[0]], cells)
    yield empty
    for model in models:
        aligned = model.get("alignment", {})
        if aligned and aligned["request"]["n"]:
            yield fill_markdown(
                "Cosine to the right tool, {}: of the user's words {}, of its request {}"
                " (n = {}; {} where it asked).",
                model["model"],
                format_interval(aligned["query"]),
                format_interval(aligned["request"]),
                aligned["request"]["n"],
                format_interval(aligned["difference"], signed=True),
            )
    for model in models:
        if model["errors"]:
            counts = format_counts(model["errors"])
            yield fill_markdown("Errors of {}: {}.", model["model"], counts)
    if card["left_out"]:
        yield fill_markdown("Left out: {}.", format_counts(card["left_out"]))
    for what, found in card["contamination"].items():
        rate = found["rates"]["any"]
        text = f"{found['trained']} training texts" if found["trained"] else "no training set here"
        yield fill_markdown("Repeated {} ({}): {}.", what, text, format_interval(rate))
    yield escape_markdown("")
