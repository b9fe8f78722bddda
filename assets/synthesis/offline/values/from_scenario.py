"""Values out of a given world: the files, ids, places, people and dates that exist there."""

import random
import re
from collections.abc import Sequence

from assets.synthesis.common.contract_reading import Slot
from assets.synthesis.offline.values.kinds import find_sort
from assets.synthesis.offline.values.values import draw_new_value, fits_schema
from warehouse.json_types import Json, JsonObject, Schema

_KINDS = {
    "files": ("path", "filename", "image_path", "video_path", "folder_path"),
    "ids": ("id", "account", "token", "uuid", "order_id", "session", "connection_id", "issue_key"),
    "places": ("city",),
    "people": ("person", "first", "last", "email", "username"),
    "dates": ("date", "datetime"),
}
_KIND_OF = {sort: kind for kind, sorts in _KINDS.items() for sort in sorts}
# Not every value comes from the listed things: people also name new ones.
_SHARE = 0.85


def draw_in_scenario(
    slot: Slot,
    root: Schema,
    rng: random.Random,
    taken: Sequence[Json],
    environment: JsonObject | None = None,
) -> Json:
    """A value for a slot, from the world where that has something of its sort."""
    if environment:
        found = [value for value in _list_existing(slot, environment) if value not in taken]
        if found and rng.random() < _SHARE:
            return rng.choice(found)
    return draw_new_value(slot, root, rng, taken)


def _list_existing(slot: Slot, environment: JsonObject) -> list[Json]:
    """The things of the world that a slot's schema allows."""
    schema = slot.schema
    if "const" in schema or schema.get("enum") or slot.type not in ("string", "integer"):
        return []
    sort = find_sort(slot)
    if slot.type == "integer" and sort != "id":
        return []
    listed = environment.get(_KIND_OF.get(sort, "")) or []
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return []
    made = [_convert_thing(sort, str(thing), slot.type) for thing in listed[:50]]
    return [value for value in made if value is not None and fits_schema(value, schema)]


def _convert_thing(sort: str, thing: str, kind: str) -> Json:
    """One thing in the form a sort wants, None where it has no such form."""
    if kind == "integer":
        return int(thing) if thing.isdecimal() and len(thing) < 16 else None
    kind = _KIND_OF[sort]
    if kind == "files":
        return _convert_file(sort, thing)
    if kind == "people":
        return _convert_person(sort, thing)
    if sort == "datetime":
        return thing if "T" in thing else f"{thing}T09:00:00Z"
    if sort == "date":
        return thing.partition("T")[0]
    form = _FORMS.get(sort)
    return thing if form is None or re.fullmatch(form, thing) else None


_FORMS = {
    "issue_key": r"[A-Z]{2,10}-\d{1,6}",
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "account": r"\d+",
}


def _convert_file(sort: str, thing: str) -> str | None:
    mark = "\\" if "\\" in thing else "/"
    folder, _, name = thing.rpartition(mark)
    suffix = name.rpartition(".")[2] if "." in name else ""
    if sort == "filename":
        return name or None
    if sort == "folder_path":
        return (folder or None) if suffix else thing
    wanted = {"image_path": _IMAGES, "video_path": _VIDEOS}.get(sort)
    return thing if wanted is None or suffix in wanted else None


_IMAGES, _VIDEOS = {"png", "jpg", "jpeg", "webp"}, {"mp4", "mov", "mkv"}


def _convert_person(sort: str, thing: str) -> str | None:
    """`Wim Dekker <wim@example.org>` as a name, a part of it, or an address."""
    name, _, rest = thing.partition(" <")
    address = rest.rstrip(">") or (thing if "@" in thing else "")
    if sort == "email":
        return address or None
    if sort == "username":
        return address.partition("@")[0] or (None if " " in thing else thing)
    if "@" in name:
        return None
    parts = name.split()
    if sort == "person" or len(parts) < 2:
        return name if sort == "person" else None
    return parts[0] if sort == "first" else parts[-1]
