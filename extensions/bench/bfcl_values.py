"""One argument as BFCL's checker reads it: its type words, its comparisons, its errors."""

from collections.abc import Callable
from typing import Any

PYTHON: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_STANDARD = str.maketrans("'", '"', " ,./-_*^")


def check_value(about: dict[str, Any], value: Any, allowed: Any) -> str | None:
    """BFCL's word for what is wrong with one argument; None when it is one of the allowed values.

    about: the parameter's entry in the function's doc. Raises what BFCL's checker would raise.
    """
    word = about["type"]
    kind, inner = PYTHON[word], None
    if word in ("array", "tuple"):
        inner = PYTHON[about["items"]["type"]]
    if word == "float" and type(value) is int:
        value = float(value)
    error, stands_for = _check_type(value, allowed, kind, inner)
    if error:
        return error
    compare = None if stands_for else _choose_comparison(kind, inner)
    if compare:
        return compare(value, allowed)
    return None if value in allowed else "value_error:others"


def _choose_comparison(kind: type, inner: type | None) -> Callable[[Any, Any], str | None] | None:
    if kind is dict:
        return _check_dict
    if kind is list:
        return _check_dicts if inner is dict else _check_list
    return _check_string if kind is str else None


def _check_type(
    value: Any, allowed: Any, kind: type, inner: type | None
) -> tuple[str | None, bool]:
    """(error, whether the value is taken for a variable: the allowed ones are of another type)."""
    usual = None
    for answer in allowed:
        if answer != "":
            usual = type(answer)
            break
    stands_for = usual is not None and usual is not kind
    if type(value) is kind:
        if inner is None:
            return None, stands_for
        if any(_check_items(value, item, inner) for item in allowed):
            return None, stands_for
        # An answer of the value's own type changes the word, not the verdict.
        return ("type_error:nested" if usual is kind else "type_error:simple"), False
    if usual is not None and type(value) is usual:
        return None, True
    return "type_error:simple", False


def _check_items(value: Any, allowed: Any, inner: type) -> bool:
    """Whether each item has a type that BFCL lets pass; any do beside an answer that is no list."""
    if type(allowed) is not list:
        return True
    return all(_check_type(item, allowed, inner, None)[0] is None for item in value)


def standardise_text(text: str) -> str:
    """Text as BFCL compares it: without blanks and , . / - _ * ^, in lower case, one quote."""
    return text.translate(_STANDARD).lower()


def _standardise_value(value: Any) -> Any:
    return standardise_text(value) if type(value) is str else value


def _check_string(value: str, allowed: Any) -> str | None:
    texts = [standardise_text(item) for item in _list_indexed(allowed) if type(item) is str]
    return None if standardise_text(value) in texts else "value_error:string"


def _check_list(value: list[Any], allowed: Any) -> str | None:
    lists = [
        [_standardise_value(item) for item in _list_indexed(one)] for one in _list_indexed(allowed)
    ]
    found = [_standardise_value(item) for item in value]
    return None if found in lists else "value_error:list/tuple"


def _check_dict(value: Any, allowed: Any) -> str | None:
    error = "dict_checker:unclear"
    for answer in _list_indexed(allowed):
        if answer == "":
            continue
        problem = _check_answer(value, answer)
        if problem is None:
            return None
        error = problem
    return error


def _check_answer(value: Any, answer: Any) -> str | None:
    error = None
    for key, item in value.items():
        if key not in answer:
            error = "value_error:dict_key"
            break
        if _standardise_value(item) not in [
            _standardise_value(item) for item in _list_indexed(answer[key])
        ]:
            error = "value_error:dict_value"
            break
    for key, items in answer.items():
        if key not in value and "" not in items:
            return "value_error:dict_key"
    return error


def _check_dicts(value: list[Any], allowed: Any) -> str | None:
    error: str | None = "list_dict_checker:unclear"
    for answers in _list_indexed(allowed):
        if len(value) != len(answers):
            error = "value_error:list_dict_count"
            continue
        pairs = ((item, answers[place]) for place, item in enumerate(value))
        error = next((e for item, one in pairs if (e := _check_dict(item, [one]))), None)
        if error is None:
            return None
    return error


def _list_indexed(values: Any) -> list[Any]:
    """The values as `values[0]`, `values[1]`, … give them: an answer that is no list raises here,
    as it does in the checker, where iterating would not."""
    return [values[place] for place in range(len(values))]
