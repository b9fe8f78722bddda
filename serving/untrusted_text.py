"""Third-party text and results as data for a model: bounded, visible, marked. Names and values are
escaped, prose loses invisible characters. Links and resources become text, as a host would ask
*this* server or fetch them; annotations and `_meta`, which steer a host, are dropped."""

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from warehouse.sanitize.untrusted_text import (
    drop_unseen,
    escape_exact,
    normalise_breaks,
    quote_name,
    quote_text,
    shorten_text,
)

_PROSE = ("description", "title", "$comment")  # keys whose text is prose
_LONGEST = 4_000  # characters of one text inside a contract or result
_DEEPEST = 24
_MOST = 400  # members of one object or list
_MEDIA = re.compile(r"(?:image|audio)/[a-z0-9.+-]{1,40}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_MOST_BLOCKS = 64
_MEDIA_TIMES = 10  # base64 of all images and sounds: so many times the characters of all text


def show_text(text: str, most: int) -> str:
    """A text of several lines without what shows nothing; `…` where it was cut."""
    return shorten_text(normalise_breaks(drop_unseen(text[: 2 * most + 100])), most)


def show_prose(text: str, most: int) -> str:
    """`shown` without blanks at its ends."""
    return show_text(text.strip(), most).strip()


def show_line(text: str, most: int) -> str:
    return show_prose(" ".join(drop_unseen(text[: 4 * most]).split()), most)


def mark_text(text: str, of: str) -> str:
    """A long text between marks with a number that its author could not know."""
    number = secrets.token_hex(4)
    return f"[third-party content {number} of {of}]\n{text}\n[end of third-party content {number}]"


class BoundedText:
    """Copies JSON values within bounds; `cut`: whether anything was left out. literal: texts are
    escaped names and values, else cleaned prose. quoted: prose between marks."""

    def __init__(
        self,
        budget: int,
        longest: int = _LONGEST,
        literal: bool = True,
        quoted: bool = False,
        members: int = _MOST,
    ) -> None:
        self._left, self._longest, self._literal = budget, longest, literal
        self._quoted, self._members = quoted, members
        self.cut = False

    def __call__(self, value: Any, depth: int = 0, key: str = "") -> Any:
        """The value without what shows nothing, deep parts and surplus members as "…"."""
        if isinstance(value, str):
            most = max(0, min(self._longest, self._left))
            self.cut = self.cut or len(value) > most
            self._left -= min(len(value), most) + 2
            if self._literal and key not in _PROSE:
                return escape_exact(value, most, keep="\n\t")
            return quote_text(show_text(value, most)) if self._quoted else show_text(value, most)
        if value is None or isinstance(value, bool | int | float):
            self._left -= 8
            return value if not isinstance(value, int) or abs(value) < 10**30 else "…"
        if depth >= _DEEPEST or self._left <= 0:
            self.cut = True
            return "…"
        if isinstance(value, Mapping):
            return self._bound_object(value, depth)
        if isinstance(value, list | tuple):
            results: list[Any] = []
            for at, part in enumerate(value):
                if at >= self._members or self._left <= 0:
                    self.cut = True
                    results.append(f"… {len(value) - at} more")
                    break
                results.append(self(part, depth + 1))
            return results
        return "…"

    def _bound_object(self, value: Mapping[str, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for at, (name, part) in enumerate(value.items()):
            if at >= self._members or self._left <= 0:
                self.cut, result["…"] = True, f"{len(value) - at} more"
                break
            written = escape_exact(str(name), 200)
            self._left -= len(written) + 4
            result[written] = self(part, depth + 1, str(name))
        return result


def bound_value(value: Any, budget: int) -> tuple[Any, bool]:
    """(copy within the budget of characters, whether something was left out)."""
    copy = BoundedText(budget)
    return copy(value), copy.cut


def dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def write_parameters(contract: Mapping[str, Any], most: int = 12) -> str:
    """The parameters of a contract in one line: `path: string, limit?: integer`."""
    schema = contract.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    required = set(map(str, required)) if isinstance(required, list) else set()
    names = sorted(map(str, properties), key=lambda name: (name not in required, name))
    parts = [
        f"{quote_name(name, 60)}{'' if name in required else '?'}:"
        f" {_name_type(properties.get(name))}"
        for name in names[:most]
    ]
    return ", ".join([*parts, *([f"… {len(names) - most} more"] if len(names) > most else [])])


def _name_type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    values = schema.get("enum")
    if isinstance(values, list) and 0 < len(values) <= 6:
        return "|".join(quote_name(str(value), 24) for value in values)
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return "|".join(quote_name(kind, 12) for kind in kinds if isinstance(kind, str)) or "any"


def limit_result(
    content: Iterable[Any], structured: Any, of: str, most: int
) -> tuple[list[dict[str, Any]], str, Any, bool]:
    """(blocks to show, their text, structured content, whether something was left out). All text
    together has at most `most` characters, and structured content as many."""
    texts, media, cut = _split_content(content, most)
    copy = BoundedText(most, longest=most, literal=False)
    data = copy(structured) if structured is not None else None
    text = "\n\n".join(texts)
    blocks = [{"type": "text", "text": mark_text(text or "(no text)", of)}, *media]
    return blocks, text, data, cut or copy.cut


def _split_content(
    content: Iterable[Any], most: int
) -> tuple[list[str], list[dict[str, Any]], bool]:
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    left, room, cut = most, most * _MEDIA_TIMES, False
    for at, block in enumerate(content):
        if at >= _MOST_BLOCKS:
            cut = True
            break
        found = block if isinstance(block, Mapping) else {"type": type(block).__name__}
        if (one := _read_media(found, room)) is not None:
            media.append(one)
            room -= len(one["data"])
            continue
        text = _read_text(found)
        cut = cut or len(text) > left
        if left > 0:
            texts.append(show_text(text, left))
            left -= len(texts[-1])
    return texts, media, cut


def _read_media(block: Mapping[str, Any], most: int) -> dict[str, Any] | None:
    kind, data, mime = block.get("type"), block.get("data"), block.get("mimeType")
    if kind not in ("image", "audio") or not isinstance(data, str) or not isinstance(mime, str):
        return None
    if len(data) > most or not _MEDIA.fullmatch(mime) or not mime.startswith(kind):
        return None
    return {"type": kind, "data": data, "mimeType": mime} if _BASE64.fullmatch(data) else None


def _read_text(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return block["text"]
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        resource = block["resource"]
        text = resource.get("text")
        uri = str(resource.get("uri", ""))[:500]
        return (
            f"[resource {uri}]\n{text}" if isinstance(text, str) else f"[resource {uri}, not text]"
        )
    if kind == "resource_link":
        return f"[link to {str(block.get('uri', ''))[:500]}]"
    size = len(block["data"]) if isinstance(block.get("data"), str) else 0
    return f"[{str(kind)[:40]} content of {size:,} characters left out]"
