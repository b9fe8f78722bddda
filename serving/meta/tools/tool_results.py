"""Results: what a third-party tool returned, made fit to hand on.

Only text, images and sounds are passed on as such. Links and embedded resources become text: a host
that resolved them would ask *this* server for them, or fetch a third-party address. Annotations and
`_meta` are left out: they steer what a host shows to whom.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from serving.meta.untrusted_text import Bounded, mark_text, show_text

_MEDIA = re.compile(r"(?:image|audio)/[a-z0-9.+-]{1,40}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_MOST_BLOCKS = 64
_MEDIA_TIMES = 10  # base64 of all images and sounds: so many times the characters of all text


def limit_result(
    content: Iterable[Any], structured: Any, of: str, most: int
) -> tuple[list[dict[str, Any]], str, Any, bool]:
    """(blocks to show, their text, structured content, whether something was left out).

    All text together has at most `most` characters, and structured content as many.
    """
    texts, media, cut = _split_content(content, most)
    copy = Bounded(most, longest=most, literal=False)
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
        held = resource.get("text")
        uri = str(resource.get("uri", ""))[:500]
        return (
            f"[resource {uri}]\n{held}" if isinstance(held, str) else f"[resource {uri}, not text]"
        )
    if kind == "resource_link":
        return f"[link to {str(block.get('uri', ''))[:500]}]"
    size = len(block["data"]) if isinstance(block.get("data"), str) else 0
    return f"[{str(kind)[:40]} content of {size:,} characters left out]"
