"""JavaScript values written as text, read as BFCL reads them."""

from typing import Any

from assets.contracts.match.bfcl.text import CheckerHangs, findall, fullmatch, match, number_of

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


def javascript_value(text: str, word: str, inner: str | None = None) -> Any:
    """What a text stands for as a JavaScript value of type `word` with items of type `inner`."""
    if word == "String":
        return text[1:-1] if _in_quotes(text) else text
    if word == "integer":
        return int(text) if fullmatch(r"-?\d+", text) else text
    if word == "float":
        return float(text) if fullmatch(r"-?\d+(?:\.\d+)?", text) else text
    if word == "Bigint":
        return int(text[:-1]) if fullmatch(r"-?\d+n", text) else text
    if word == "Boolean":
        return text == "true" if text in ("true", "false") else text
    if word == "array":
        return _array(text.strip(), inner)
    if word == "dict":
        return _dict(text.strip())
    if word == "any":
        return text
    raise ValueError(f"BFCL has no JavaScript type {word}")


def _array(code: str, inner: str | None) -> Any:
    """A list of lists, a list, or the text itself where anything in it cannot be read."""
    try:
        rows = match(f"{_ROWS}|{_NEW_ROWS}", code)
        if rows:
            return [_row(place, row) for place, row in enumerate(findall(r"\[(.*?)\]", rows[0]))]
        found = match(_LIST, code)
        if found is None:
            return code
        listed = (found[2] if found[1] is None else found[1]).strip()
        items = [item.strip() for item in listed.split(",")] if listed else []
        return [javascript_value(i, inner) if inner else _guessed(i) for i in items]
    except CheckerHangs:
        raise
    except Exception:
        return code


def _row(place: int, text: str) -> list[Any]:
    """The first of the inner lists still has the outer one's bracket."""
    row = text.strip()
    return [
        _guessed(item) for item in (row[1:] if place == 0 and row[:1] == "[" else row).split(",")
    ]


def _dict(code: str) -> Any:
    """One level of pairs; braces inside end it early, as they do in BFCL."""
    found = None if code == "{}" else match(r"\{(.*?)\}", code)
    if found is None:
        return {} if code == "{}" else code
    try:
        return {_bare(key): _held(held.strip()) for key, held in findall(_PAIR, found[1])}
    except CheckerHangs:
        raise
    except Exception:
        return code


def _bare(key: str) -> str:
    return key.strip().strip("'\"")


def _held(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return _array(text, None)
    if text.startswith("{") and text.endswith("}"):
        return _dict(text)
    return _guessed(text.strip("'\""))


def _guessed(text: str) -> Any:
    """A value whose type nobody told."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if _in_quotes(text) else number_of(text)


def _in_quotes(text: str) -> bool:
    return any(text.startswith(quote) and text.endswith(quote) for quote in "\"'")
