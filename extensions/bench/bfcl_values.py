"""Patterns over texts that a model wrote, as the standard library reads them, in bounded time."""

from collections.abc import Callable
from functools import cache
from typing import Any

import regex

_SECONDS = 0.25


class CheckerHangs(Exception):
    """A pattern takes more than a quarter of a second of a processor, where texts of calls take
    microseconds: BFCL's checker would not come back."""


@cache
def _compile_pattern(pattern: str) -> Any:
    # The standard library counts \x1c to \x1f as white space; this engine does not.
    return regex.compile(pattern.replace(r"\s", r"[\s\x1c-\x1f]"))


def match(pattern: str, text: str) -> Any:
    return _run_limited(_compile_pattern(pattern).match, text)


def search(pattern: str, text: str) -> Any:
    return _run_limited(_compile_pattern(pattern).search, text)


def findall(pattern: str, text: str) -> list[Any]:
    return _run_limited(_compile_pattern(pattern).findall, text)


def fullmatch(pattern: str, text: str) -> Any:
    """From the start to the end; a line break may follow, as `$` allows."""
    return match(f"(?:{pattern})$", text)


def read_number(text: str) -> Any:
    """The integer, else the float, that Python reads in a text; else the text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _run_limited(find: Any, text: str) -> Any:
    try:
        return find(text, timeout=_SECONDS)
    except TimeoutError:
        raise CheckerHangs from None


JAVA: dict[str, type] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    **dict.fromkeys(("char", "String", "any"), str),
    **dict.fromkeys(("Array", "ArrayList", "Queue", "Stack"), list),
    **dict.fromkeys(("HashMap", "Hashtable"), dict),
    "boolean": bool,
    "Set": set,
}
_WHOLE = r"-?\d+"
_DECIMAL = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_AS_LIST = r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)"
_ADDED = r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*((?s:.)+?)\s*\}\}"
_EMPTY_LIST = r"new\s+ArrayList<\w*>\(\)"
_ARRAY = r"new\s+\w+\[\]\s*\{(.*?)\}"
_MAP = r"new\s+HashMap<(?s:.)*?>\s*\(\)\s*\{\s*\{?\s*((?s:.)*?)\s*\}?\s*\}"
_EMPTY_MAP = r"new\s+HashMap<.*?>\s*\(\)"


def read_java_value(text: str, word: str, inner: str | None = None) -> Any:
    """What a text stands for as a Java value of type `word` with items of type `inner`."""
    if word in ("byte", "short", "integer"):
        return int(text) if fullmatch(_WHOLE, text) else text
    if word == "long":
        return int(_strip_suffix(text)) if fullmatch(_WHOLE + "[lL]", text) else text
    if word == "float":
        return float(_strip_suffix(text)) if fullmatch(_DECIMAL + "[fF]", text) else text
    if word == "double":
        return float(text) if fullmatch(_DECIMAL, text) else text
    if word == "boolean":
        return text == "true" if text in ("true", "false") else text
    if word == "Array":
        return _read_array(text, inner)
    if word == "ArrayList":
        return _read_array_list(text, inner)
    if word == "HashMap":
        return _read_hash_map(text)
    if word in ("char", "String", "any"):
        return text
    raise NotImplementedError(f"BFCL cannot read a Java {word}")


def _strip_suffix(text: str) -> str:
    """Without the letter at its end; a line break after it (which `$` lets pass) stays harmless."""
    return text.rstrip("\n").rstrip("lLfF")


def _read_array(text: str, inner: str | None) -> Any:
    found = search(_ARRAY, text)
    if found is None:
        return text
    items = [item.strip() for item in found[1].split(",")]
    return [_read_item(item, inner) for item in items if item]


def _read_array_list(text: str, inner: str | None) -> Any:
    listed = search(_AS_LIST, text)
    if listed:
        return [_read_list_item(item.strip(), inner) for item in listed[1].split(",")]
    added = search(_ADDED, text)
    if added:
        return [_read_list_item(item.strip(), inner) for item in findall(r"add\((.+?)\)", added[1])]
    return [] if search(_EMPTY_LIST, text) else text


def _read_list_item(text: str, inner: str | None) -> Any:
    """In a list a text or character loses its quotes, in an array it does not."""
    return text[1:-1] if inner in ("char", "String") else _read_item(text, inner)


def _read_item(text: str, inner: str | None) -> Any:
    return read_java_value(text, inner) if inner else _guess_value(text)


def _read_hash_map(text: str) -> Any:
    found = search(_MAP, text)
    if found:
        put = findall(r'put\("(.*?)",\s*(.*?)\)', found[1]) if found[1].strip() else []
        return {key: _guess_value(item.strip()) for key, item in put}
    return {} if search(_EMPTY_MAP, text) else text


def _guess_value(text: str) -> Any:
    """A value whose type nobody told."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if fullmatch(_WHOLE + "[lL]", text):
        return int(text[:-1])
    if fullmatch(_DECIMAL + "[fF]", text):
        return float(_strip_suffix(text))
    return read_number(text)


JAVASCRIPT: dict[str, type] = {
    **dict.fromkeys(("String", "any"), str),
    **dict.fromkeys(("integer", "Bigint"), int),
    "float": float,
    "Boolean": bool,
    "dict": dict,
    "array": list,
}
_ROWS = r"\[\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*\]"
_NEW_ROWS = r"\bnew\s+Array\(\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*\)"
_LIST = r"\[(.*?)\]|\bnew\s+Array\((.*?)\)"
_PAIR = r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)"


def read_javascript_value(text: str, word: str, inner: str | None = None) -> Any:
    """What a text stands for as a JavaScript value of type `word` with items of type `inner`."""
    if word == "String":
        return text[1:-1] if _is_quoted(text) else text
    if word == "integer":
        return int(text) if fullmatch(r"-?\d+", text) else text
    if word == "float":
        return float(text) if fullmatch(r"-?\d+(?:\.\d+)?", text) else text
    if word == "Bigint":
        return int(text[:-1]) if fullmatch(r"-?\d+n", text) else text
    if word == "Boolean":
        return text == "true" if text in ("true", "false") else text
    if word == "array":
        return _read_javascript_array(text.strip(), inner)
    if word == "dict":
        return _read_dict(text.strip())
    if word == "any":
        return text
    raise ValueError(f"BFCL has no JavaScript type {word}")


def _read_javascript_array(code: str, inner: str | None) -> Any:
    """A list of lists, a list, or the text itself where anything in it cannot be read."""
    try:
        rows = match(f"{_ROWS}|{_NEW_ROWS}", code)
        if rows:
            return [
                _read_row(place, row) for place, row in enumerate(findall(r"\[(.*?)\]", rows[0]))
            ]
        found = match(_LIST, code)
        if found is None:
            return code
        listed = (found[2] if found[1] is None else found[1]).strip()
        items = [item.strip() for item in listed.split(",")] if listed else []
        return [
            read_javascript_value(i, inner) if inner else _guess_javascript_value(i) for i in items
        ]
    except CheckerHangs:
        raise
    except Exception:
        return code


def _read_row(place: int, text: str) -> list[Any]:
    """The first of the inner lists still has the outer one's bracket."""
    row = text.strip()
    return [
        _guess_javascript_value(item)
        for item in (row[1:] if place == 0 and row[:1] == "[" else row).split(",")
    ]


def _read_dict(code: str) -> Any:
    """One level of pairs; braces inside end it early, as they do in BFCL."""
    found = None if code == "{}" else match(r"\{(.*?)\}", code)
    if found is None:
        return {} if code == "{}" else code
    try:
        return {_strip_key(key): _read_held(held.strip()) for key, held in findall(_PAIR, found[1])}
    except CheckerHangs:
        raise
    except Exception:
        return code


def _strip_key(key: str) -> str:
    return key.strip().strip("'\"")


def _read_held(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return _read_javascript_array(text, None)
    if text.startswith("{") and text.endswith("}"):
        return _read_dict(text)
    return _guess_javascript_value(text.strip("'\""))


def _guess_javascript_value(text: str) -> Any:
    """A value whose type nobody told."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if _is_quoted(text) else read_number(text)


def _is_quoted(text: str) -> bool:
    return any(text.startswith(quote) and text.endswith(quote) for quote in "\"'")


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
# Language -> (type words, those with items, its error word, the value behind a text).
_SPOKEN: dict[str, tuple[dict[str, type], tuple[str, ...], str, Callable[..., Any]]] = {
    "java": (JAVA, ("Array", "ArrayList"), "type_error:java", read_java_value),
    "javascript": (JAVASCRIPT, ("array",), "type_error:js", read_javascript_value),
}
LANGUAGES = ("python", *_SPOKEN)
_STANDARD = str.maketrans("'", '"', " ,./-_*^")


def check_value(about: dict[str, Any], value: Any, allowed: Any, language: str) -> str | None:
    """BFCL's word for what is wrong with one argument; None when it is one of the allowed values.

    about: the parameter's entry in the function's doc. Raises what BFCL's checker would raise.
    """
    word = about["type"]
    if language == "python":
        kind, inner = PYTHON[word], None
        if word in ("array", "tuple"):
            inner = PYTHON[about["items"]["type"]]
        if word == "float" and type(value) is int:
            value = float(value)
    else:
        words, nested, wrong, read = _SPOKEN[language]
        kind, inner = words[word], None
        if type(value) is not str:
            return wrong
        if word in nested:
            inner = words[about["items"]["type"]]
            value = read(value, word, about["items"]["type"])
        else:
            value = read(value, word)
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
    for one in allowed:
        if one != "":
            usual = type(one)
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
        found = _check_answer(value, answer)
        if found is None:
            return None
        error = found
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
