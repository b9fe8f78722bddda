"""Java values written as text, read as BFCL reads them."""

from typing import Any

from extensions.bench.bfcl.text import findall, fullmatch, read_number, search

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
