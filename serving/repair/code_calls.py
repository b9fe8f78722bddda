"""A call as a model wrote it, and the calls that a model writes as Python."""

import ast
from dataclasses import dataclass
from typing import Any

from assets.contracts.repair.json_text import NameTwice, evaluate_literal
from warehouse.patterns import compile_pattern

LONGEST_CODE = 100_000  # characters of calls written as Python
_CODE = compile_pattern(r"^\s*\[?\s*(?:[A-Za-z_][\w.\-:/]*)\s*\(")
_CODE_FAULT = "its arguments are code, not values: send them as JSON"


@dataclass(frozen=True)
class DraftCall:
    """A call as written. name: "" for none. arguments: text or JSON. fault: why unreadable."""

    name: str
    arguments: Any
    id: str | None = None
    fault: str = ""


def read_code_calls(text: str) -> list[DraftCall]:
    """`name(parameter=value)`, a list of these or several lines, as Python writes them."""
    if len(text) > LONGEST_CODE or not _CODE.search(text):
        return []
    try:
        return _read_code(ast.parse(text.strip()).body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []


def _read_code(body: list[ast.stmt]) -> list[DraftCall]:
    expressions = [item.value for item in body if isinstance(item, ast.Expr | ast.Assign)]
    if len(expressions) < len(body):
        return []
    calls: list[ast.expr] = []
    for expression in expressions:
        listed = isinstance(expression, ast.List | ast.Tuple)
        calls += expression.elts if listed else [expression]  # type: ignore[attr-defined]
    drafts = [_read_code_call(call) for call in calls]
    return [draft for draft in drafts if draft] if all(drafts) else []


def _read_code_call(call: ast.expr) -> DraftCall | None:
    if not isinstance(call, ast.Call):
        return None
    name = ast.unparse(call.func).removeprefix("default_api.").removesuffix(".call")
    if name == "print":
        inner = call.args[0] if len(call.args) == 1 else None
        return _read_code_call(inner) if isinstance(inner, ast.Call) else None
    try:
        arguments = {str(part.arg): evaluate_literal(part.value) for part in call.keywords}
        places = [evaluate_literal(part) for part in call.args]
    except (ValueError, TypeError, NameTwice):
        return DraftCall(name, "", None, _CODE_FAULT)
    if len(arguments) < len(call.keywords) or (places and arguments):
        return DraftCall(name, "", None, _CODE_FAULT)
    alone = places[0] if len(places) == 1 and isinstance(places[0], dict) else places
    return DraftCall(name, alone if places else arguments)
