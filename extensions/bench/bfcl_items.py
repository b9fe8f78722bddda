"""BFCL's questions as ours: its functions as contracts, its truth as calls we can match."""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.match.match import assign_rows, match_call
from extensions.bench.benchmark_items import BenchmarkPlan, BenchmarkSet, make_item
from extensions.bench.bfcl_files import BfclItem, match_bfcl, read_bfcl
from training.evaluation.caller_items import CallerItem
from training.evaluation.predictor import PredictionAnswer
from warehouse.json_types import Row

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


def read_bfcl_set(plan: BenchmarkPlan) -> BenchmarkSet:
    """Every category that is judged by AST match of Python calls, or by (ir)relevance. `bfcl` is
    BFCL's verdict, `ours` that of our matcher: any allowed value counts, calls in any order."""
    folder, skipped = plan.require_folder(), list[str]()
    items, files = [], dict[str, None]()
    for item in read_bfcl(folder, skipped):
        tools = [to_contract(doc) for doc in item.functions]
        text = render_request(item)
        calls = [_write_call(call) for call in item.truth]
        items.append(make_item(item.id, item.category, item.id, text, tools, calls, bfcl=item))
        files.setdefault(item.category)
    paths = [p for p in sorted(folder.glob("BFCL_v*.json")) if p.stem.split("_", 2)[2] in files]
    left_out = dict.fromkeys(skipped, 1)
    measures = ("bfcl", "ours")
    return BenchmarkSet("bfcl", items, judge_bfcl, measures, paths, left_out, narrows=False)


def _write_call(truth: Mapping[str, Any]) -> dict[str, Any]:
    """An expected call with the first value allowed of each parameter that may not be left out."""
    name, allowed = next(iter(truth.items()))
    needed = {key: values for key, values in allowed.items() if values and OMITTED not in values}
    arguments = {key: _unwrap_allowed_value(values[0], {}) for key, values in needed.items()}
    return {"name": name, "arguments": arguments}


def judge_bfcl(item: CallerItem, answer: PredictionAnswer) -> Row:
    """Both verdicts, with the error of each."""
    asked = item.row["bfcl"]
    theirs = match_bfcl(asked.functions, asked.truth, answer.calls, category=asked.category)
    ours, our_error = match_by_our_rules(asked, answer.calls)
    verdicts = {"bfcl": theirs.match, "ours": ours}
    return {**verdicts, "error_kind": theirs.error_kind, "our_error": our_error}


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
    arguments_given = given if isinstance(given, Mapping) else {}
    meant = {
        parameter: _choose_allowed_value(
            values, arguments_given.get(parameter), about.get(parameter) or {}
        )
        for parameter, values in allowed.items()
        if parameter in arguments_given or (values and OMITTED not in values)  # [] allows no value
    }
    match = match_call(schema, {"name": name, "arguments": meant}, call)
    return None if match.match else match.error_kind or "wrong_value"


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
        contents = given if isinstance(given, Mapping) else {}
        return {
            key: _choose_allowed_value(
                options if isinstance(options, list) else [options], contents.get(key), {}
            )
            for key, options in value.items()
            if key in contents or not isinstance(options, list) or OMITTED not in options
        }
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        contents = given if isinstance(given, list) else []
        return [
            _unwrap_allowed_value(one, contents[at] if at < len(contents) else None)
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
