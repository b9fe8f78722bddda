"""Why a call is left as it is, as one precise question."""

from collections.abc import Sequence
from typing import Any

from assets.contracts.repair.json_paths import find_choices, find_schema, format_value
from assets.contracts.repair.problems import Problem
from assets.contracts.schema.reading import collect_properties
from assets.contracts.validate import Flaw
from serving.repair.evidence import Evidence
from serving.repair.report import Reason
from serving.repair.tools import Candidate, Toolset
from warehouse.json_types import Schema


def ask_for_values(
    candidate: Candidate, problems: Sequence[Problem], flaws: Sequence[Flaw]
) -> Reason:
    """What is missing first, else the first value that does not fit."""
    missing = [problem for problem in problems if problem["kind"] == "missing_required"]
    if missing:
        about = _describe_parameter(candidate, flaws)
        listed = "; ".join(str(one["expected"]) for one in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        question = f"{candidate.name} needs {listed}{more}{about}. Which value should it have?"
        return Reason("missing_value", question[:600], str(missing[0]["path"]))
    first = problems[0]
    question = (
        f"{candidate.name}, {first['path']}: expected {first['expected']}, found {first['found']};"
        f" {first['fix']}"
    )
    return Reason("unfit_value", question[:600], str(first["path"]))


def _describe_parameter(candidate: Candidate, flaws: Sequence[Flaw]) -> str:
    """What the contract says of the first parameter that is missing."""
    at = next((flaw.at for flaw in flaws if flaw.kind == "missing_required"), ())
    root = candidate.contract["inputSchema"]
    known: Any = collect_properties(root, root).get(str(at[0]), {}) if len(at) == 1 else {}
    text = known.get("description") if isinstance(known, dict) else None
    return f" ({' '.join(str(text).split())[:160]})" if text else ""


def ask_for_tool(name: str, meant: Sequence[Candidate], toolset: Toolset) -> Reason:
    """Which of several servers, or which tool at all."""
    if meant:
        servers = ", ".join(repr(one.server or "unnamed")[:80] for one in meant[:5])
        question = f"{len(meant)} servers have a tool {meant[0].name!r}: {servers}. Which one?"
        return Reason("ambiguous_tool", question)
    near = ", ".join(toolset.list_similar(name)) or ", ".join(list(toolset.by_name)[:5]) or "none"
    question = f"there is no tool {name[:80]!r}; the ones most like it: {near[:300]}. Which one?"
    return Reason("unknown_tool", question)


def explain_cut(
    path: str, parsed: Any, arguments: Any, root: Schema, evidence: Evidence
) -> Reason | None:
    """Why a text that broke off cannot be closed; None where its last value is whole: a number that
    the conversation holds, or the only choice of its schema that begins so."""
    if path == "name":
        question = "the call broke off before its next argument: send it again, whole"
        return Reason("cut_off", question, path)
    name, value = _find_last(parsed)
    if isinstance(value, int | float) and not isinstance(value, bool) and evidence.holds(value):
        return None
    if path == f"$.{name}" and isinstance(value, str) and isinstance(arguments, dict):
        choices = find_choices(find_schema(root, (str(name),)), root)
        longer = [choice for choice in choices if str(choice).lower().startswith(value.lower())]
        if len(value) > 2 and longer == [arguments.get(name)]:
            return None
    shown = format_value(value, 60)
    question = f"the call broke off at {path}, after {shown}: send it again, whole"
    return Reason("cut_off", question, path)


def _find_last(value: Any) -> tuple[Any, Any]:
    """(name, value) of what stands last in a value."""
    name = None
    while isinstance(value, dict | list) and value:
        name = len(value) - 1 if isinstance(value, list) else list(value)[-1]
        value = value[name]
    return name, value
