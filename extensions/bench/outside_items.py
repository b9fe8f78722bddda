"""BFCL's questions as ours: its functions as contracts, its truth as calls we can match."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.contracts.match.match import assign_rows, match_call
from extensions.bench.bfcl_command import BfclItem, match_bfcl, read_bfcl
from extensions.bench.contamination import Embed, check_against_training
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.predictor import PredictionAnswer, PredictionRequest, Predictor
from training.evaluation.retriever import NothingToEvaluate
from warehouse.progress import Progress, SilentProgress
from warehouse.store import Warehouse

_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "bool": "boolean",
    "int": "integer",
}
_JSON = ("string", "integer", "number", "boolean", "array", "object", "null")
_MAX_DEPTH = 24
OMITTED = ""  # among the allowed values: the parameter may be left out


def to_asked(item: BfclItem) -> PredictionRequest:
    """The question as predictors take it."""
    tools = [to_contract(doc) for doc in item.functions]
    return PredictionRequest(item.id, render_request(item), tools)


def render_request(item: BfclItem) -> str:
    """What the user says; other messages before it, each with its role."""
    turns = [
        (message.get("role", "user"), str(message.get("content") or ""))
        for message in item.messages
    ]
    if len(turns) == 1:
        return turns[0][1]
    return "\n".join(text if role == "user" else f"[{role}] {text}" for role, text in turns)


def to_contract(doc: Mapping[str, Any]) -> dict[str, Any]:
    """A function's doc as a contract."""
    about = doc.get("parameters")
    schema = _to_json_schema(about if isinstance(about, Mapping) else {}, 0)
    schema["type"] = "object"
    schema.setdefault("properties", {})
    described = str(doc.get("description") or "")
    return {"name": str(doc.get("name")), "description": described, "inputSchema": schema}


def match_by_our_rules(
    item: BfclItem, calls: Sequence[Mapping[str, Any]]
) -> tuple[bool, str | None]:
    """(whether the calls are the expected ones by our matcher, the error kind). Calls in any order;
    an allowed value that matches counts, a parameter that may be left out may be."""
    if "relevance" in item.category:
        wanted = "irrelevance" not in item.category
        fine = bool(calls) is wanted
        return fine, None if fine else "no_call" if wanted else "unwanted_call"
    if len(calls) != len(item.truth):
        return False, "no_call" if not calls else "wrong_count"
    schemas = {doc.get("name"): to_contract(doc)["inputSchema"] for doc in item.functions}
    results = [[_match_one_call(schemas, want, call) for call in calls] for want in item.truth]
    fits = assign_rows([[int(kind is None) for kind in row] for row in results])
    lost = [row for row, at in zip(results, fits, strict=True) if at is None or row[at] is not None]
    return (True, None) if not lost else (False, min(filter(None, lost[0]), key=_rank_error_kind))


_GRAVE = ("wrong_value", "wrong_type", "extra_parameter", "missing_parameter", "wrong_tool")


def _rank_error_kind(kind: str) -> int:
    """The call that came nearest says what is wrong."""
    return _GRAVE.index(kind) if kind in _GRAVE else len(_GRAVE)


def _match_one_call(
    schemas: Mapping[Any, Any], truth: Mapping[str, Any], call: Mapping[str, Any]
) -> str | None:
    """The error kind of one call against one expected one; None where it matches."""
    name, allowed = next(iter(truth.items()))
    given = call.get("arguments")
    schema = schemas.get(name) or {}
    about = schema.get("properties") or {}
    held = given if isinstance(given, Mapping) else {}
    meant = {
        parameter: _choose_allowed_value(values, held.get(parameter), about.get(parameter) or {})
        for parameter, values in allowed.items()
        if parameter in held or (values and OMITTED not in values)  # [] allows no value
    }
    found = match_call(schema, {"name": name, "arguments": meant}, call)
    return None if found.match else found.error_kind or "wrong_value"


def _choose_allowed_value(values: Sequence[Any], given: Any, schema: Mapping[str, Any]) -> Any:
    """Of the allowed values the one that is meant: the first that matches what was given."""
    options = [
        _unwrap_allowed_value(value, given)
        for value in values
        if value != OMITTED or given == OMITTED
    ]
    for option in options:
        if _is_same_value(option, given, schema):
            return option
    return options[0] if options else OMITTED


def _unwrap_allowed_value(value: Any, given: Any) -> Any:
    """An allowed value as a value: the truth holds a list of allowed ones for each entry of an
    object."""
    if isinstance(value, Mapping):
        held = given if isinstance(given, Mapping) else {}
        return {
            key: _choose_allowed_value(
                options if isinstance(options, list) else [options], held.get(key), {}
            )
            for key, options in value.items()
            if key in held or not isinstance(options, list) or OMITTED not in options
        }
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        held = given if isinstance(given, list) else []
        return [
            _unwrap_allowed_value(one, held[at] if at < len(held) else None)
            for at, one in enumerate(value)
        ]
    return value


def _is_same_value(want: Any, have: Any, schema: Mapping[str, Any]) -> bool:
    one = {"type": "object", "properties": {"value": schema}}
    calls = [{"name": "f", "arguments": {"value": value}} for value in (want, have)]
    return match_call(one, calls[0], calls[1]).match


def _to_json_schema(about: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A doc's schema as JSON Schema."""
    result: dict[str, Any] = {
        name: about[name]
        for name in ("description", "enum", "default", "required")
        if name in about
    }
    word = about.get("type")
    kind = _TYPES.get(str(word), word)
    if kind in _JSON:
        result["type"] = kind
    if depth >= _MAX_DEPTH:
        return result
    if isinstance(about.get("properties"), Mapping):
        result["properties"] = {
            str(name): _to_json_schema(one if isinstance(one, Mapping) else {}, depth + 1)
            for name, one in about["properties"].items()
        }
    if isinstance(about.get("items"), Mapping):
        result["items"] = _to_json_schema(about["items"], depth + 1)
    return result


Row = dict[str, Any]
RULES = {
    "bfcl": "BFCL's checker reproduced (bfcl_compat): its normalised strings, its types",
    "ours": "AST match through the schema, any allowed value, calls in any order",
    "relevance": "irrelevance categories: right is no call; relevance: any call",
}


def evaluate_outside_set(
    warehouse: Warehouse,
    folder: Path,
    predictors: Sequence[Predictor],
    embed: Embed | None = None,
    per_category: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Every predictor on a BFCL-format folder: {"set", "contamination", "models": [summary],
    "rules", "skipped", "rows"}; each is paired with the last, the baseline as a rule. per_category:
    items, the first of each; None: all. Raises UnusableInput, NothingToEvaluate."""
    reporter = progress or SilentProgress()
    skipped: list[str] = []
    items = _choose_items(read_bfcl(folder, skipped), per_category, folder)
    name = f"BFCL-format {folder.name}"
    texts = [render_request(item) for item in items]
    match = check_against_training(warehouse, texts, name, embed)
    clean = dict(zip([item.id for item in items], match.report.clean, strict=True))
    rows: list[Row] = []
    asked = [to_asked(item) for item in items]
    for predictor in predictors:
        stage = f"asking {predictor.label[:40]}"
        answers = predictor.predict(asked, lambda done, of, at=stage: reporter.update(at, done, of))
        rows += [
            make_outside_row(item, answer, predictor.label, clean[item.id])
            for item, answer in zip(items, answers, strict=True)
        ]
    models = [
        summarise_outside_rows(rows, predictor.label, predictors[-1].label)
        for predictor in predictors
    ]
    common = {"set": name, "contamination": match.summary, "skipped": skipped, "rules": RULES}
    return {**common, "models": models, "rows": rows}


def make_outside_row(item: BfclItem, answer: PredictionAnswer, model: str, clean: bool) -> Row:
    """One item's verdicts."""
    theirs = match_bfcl(item.functions, item.truth, answer.calls, category=item.category)
    ours, kind = match_by_our_rules(item, answer.calls)
    return {
        "model": model,
        "item_id": item.id,
        "category": item.category,
        "calls": json.dumps(answer.calls, ensure_ascii=False, default=str),
        "kind": answer.kind,
        "bfcl": theirs.match,
        "bfcl_error": theirs.error_kind,
        "ours": ours,
        "ours_error": kind,
        "clean": clean,
        "failed": answer.error is not None,
        "error": answer.error,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "usd": answer.usd,
    }


def summarise_outside_rows(rows: Sequence[Row], model: str, against: str) -> dict[str, Any]:
    """JSON of one model: figures by BFCL's rules and by ours, each over all items and over the
    clean ones, per category and in all; the paired difference to `against` on common items."""
    mine = [row for row in rows if row["model"] == model]
    answered = [row for row in mine if not row["failed"]]
    theirs = {r["item_id"]: r for r in rows if r["model"] == against and not r["failed"]}
    common = [(row, theirs[row["item_id"]]) for row in answered if row["item_id"] in theirs]
    categories = dict.fromkeys(row["category"] for row in answered)
    return {
        "model": model,
        "n": len(answered),
        "failures": dict(Counter(str(row["error"]) for row in mine if row["failed"])),
        **_measure_both_rules(answered),
        "categories": {
            name: _measure_both_rules([row for row in answered if row["category"] == name])
            for name in categories
        },
        "errors": dict(Counter(str(r["bfcl_error"]) for r in answered if not r["bfcl"])),
        "against": against,
        "difference": bootstrap_difference(
            [float(ours["bfcl"]) for ours, _ in common],
            [float(other["bfcl"]) for _, other in common],
            [ours["item_id"] for ours, _ in common],
        ).as_dict(),
        "prompt_tokens": sum(row["prompt_tokens"] for row in answered),
        "completion_tokens": sum(row["completion_tokens"] for row in answered),
        "usd": round(sum(row["usd"] for row in answered), 6),
    }


def _measure_both_rules(rows: Sequence[Row]) -> dict[str, Any]:
    return {name: measure_all_and_clean(rows, name) for name in ("bfcl", "ours")}


def measure_all_and_clean(rows: Sequence[Row], name: str) -> dict[str, dict[str, Any]]:
    """A measure over all items and over the clean ones: {"all": figure, "clean": figure}."""
    clean = [row for row in rows if row["clean"]]
    return {
        part: bootstrap_mean(
            [float(row[name]) for row in of], [row["item_id"] for row in of]
        ).as_dict()
        for part, of in (("all", rows), ("clean", clean))
    }


def _choose_items(items: Sequence[BfclItem], most: int | None, folder: Path) -> list[BfclItem]:
    """The first so many of each category."""
    counts: Counter[str] = Counter()
    out = []
    for item in items:
        counts[item.category] += 1
        if most is None or counts[item.category] <= most:
            out.append(item)
    if not out:
        raise NothingToEvaluate(f"{folder}: found no question in its files")
    return out
