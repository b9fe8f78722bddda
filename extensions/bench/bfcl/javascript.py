"""JavaScript values written as text, read as BFCL reads them."""

from typing import Any

from extensions.bench.bfcl.text import CheckerHangs, findall, fullmatch, match, read_number

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
        return _read_array(text.strip(), inner)
    if word == "dict":
        return _read_dict(text.strip())
    if word == "any":
        return text
    raise ValueError(f"BFCL has no JavaScript type {word}")


def _read_array(code: str, inner: str | None) -> Any:
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
        return [read_javascript_value(i, inner) if inner else _guess_value(i) for i in items]
    except CheckerHangs:
        raise
    except Exception:
        return code


def _read_row(place: int, text: str) -> list[Any]:
    """The first of the inner lists still has the outer one's bracket."""
    row = text.strip()
    return [
        _guess_value(item)
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
        return _read_array(text, None)
    if text.startswith("{") and text.endswith("}"):
        return _read_dict(text)
    return _guess_value(text.strip("'\""))


def _guess_value(text: str) -> Any:
    """A value whose type nobody told."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if _is_quoted(text) else read_number(text)


def _is_quoted(text: str) -> bool:
    return any(text.startswith(quote) and text.endswith(quote) for quote in "\"'")
