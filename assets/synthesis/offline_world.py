"""Values out of a given world: the files, ids, places, people and dates that exist there.

What belongs here: which of the world's things a parameter can take.
What does not: values nobody listed (`values.py`), how the world comes to be (`environment.py`).
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from assets.synthesis.reading import Slot
from assets.synthesis.sorts import sort_of
from assets.synthesis.values import draw_new, fits

Json = Any
_KINDS = {
    "files": ("path", "filename", "image_path", "video_path", "folder_path"),
    "ids": ("id", "account", "token", "uuid", "order_id", "session", "connection_id", "issue_key"),
    "places": ("city", "address", "country", "airport"),
    "people": ("person", "first", "last", "email", "username"),
    "dates": ("date", "datetime"),
}
_KIND_OF = {sort: kind for kind, sorts in _KINDS.items() for sort in sorts}
# Not every value comes from the listed things: people also name new ones.
_SHARE = 0.85


def draw_in(
    slot: Slot,
    root: Mapping[str, Json],
    rng: random.Random,
    taken: Sequence[Json],
    environment: Mapping[str, Json] | None = None,
) -> Json:
    """A value for a slot, from the world where that has something of its sort."""
    if environment:
        found = [value for value in _existing(slot, environment) if value not in taken]
        if found and rng.random() < _SHARE:
            return rng.choice(found)
    return draw_new(slot, root, rng, taken)


def _existing(slot: Slot, environment: Mapping[str, Json]) -> list[Json]:
    """The things of the world that a slot's schema allows."""
    schema = slot.schema
    if "const" in schema or schema.get("enum") or slot.type not in ("string", "integer"):
        return []
    sort = sort_of(slot)
    if slot.type == "integer" and sort != "id":
        return []
    listed = environment.get(_KIND_OF.get(sort, "")) or []
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return []
    made = [_as(sort, str(thing), slot.type) for thing in listed[:50]]
    return [value for value in made if value is not None and fits(value, schema)]


def _as(sort: str, thing: str, kind: str) -> Json:
    """One thing in the form a sort wants, None where it has no such form."""
    path = PurePosixPath(thing)
    if kind == "integer":
        return int(thing) if thing.isdecimal() and len(thing) < 16 else None
    if sort == "filename":
        return path.name
    if sort == "folder_path":
        return (
            str(path.parent)
            if path.suffix and str(path.parent) not in (".", "/")
            else (None if path.suffix else thing)
        )
    if sort == "image_path" and path.suffix not in (".png", ".jpg", ".jpeg", ".webp"):
        return None
    if sort == "video_path" and path.suffix not in (".mp4", ".mov", ".mkv"):
        return None
    if sort in ("first", "last"):
        return thing.split()[0 if sort == "first" else -1] if " " in thing else None
    if sort == "email" and "@" not in thing:
        return None
    if sort == "username" and (" " in thing or "@" in thing):
        return None
    if sort == "datetime":
        return thing if "T" in thing else f"{thing}T09:00:00Z"
    return thing.partition("T")[0] if sort == "date" else thing
