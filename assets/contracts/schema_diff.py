"""How two versions of one JSON Schema, or of a tool's annotations, differ, field by field.

The proof decides: where everything that was right stays right, no field below is breaking; where
that cannot be shown, at least one is. Paths are dotted (`inputSchema.properties.limit.maximum`,
`…[]` for items); a name that is not plain is in brackets, as JSON (`properties["a.b"]`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from assets.contracts.schema_shapes import (
    Schema,
    equals_json,
    find_lost_references,
    read_list,
    read_mapping,
    spend_steps,
)
from assets.contracts.subsumption import ASSERTING, GROUPS, AcceptanceProof, NameScope
from assets.contracts.validate import find_dialect
from warehouse.json_types import JsonObject
from warehouse.sanitize.untrusted_text import shorten_text

_PLAIN_NAME = re.compile(r"[\w$-]{1,60}")
_WORDING = {
    *("title", "description", "examples", "example", "deprecated", "$comment", "readOnly"),
    *("writeOnly", "contentMediaType", "contentEncoding", "contentSchema", "$id", "$anchor"),
}
_ELSEWHERE = {"$ref", "$defs", "definitions", "properties", "required", "additionalProperties"}
_LISTS = ("anyOf", "oneOf", "allOf")
_MAX_DEPTH = 16
_MAX_NODES = 5_000
_MAX_FIELDS = 200


@dataclass(frozen=True)
class SchemaChange:
    """One field that differs. cls: breaking, compatible, wording or suspicious."""

    path: str
    cls: str
    why: str


def compare(old: Schema, new: Schema, label: str, *, results: bool = False) -> list[SchemaChange]:
    """Every difference of two schemas; [] when there is none.

    By default as who fills the schema in: what was accepted and may be refused is breaking. With
    `results` as who reads by it: what may come and could not come before is breaking, and so is a
    field that is never there any more. `label` stands in front of each path.
    """
    if equals_json(old, new):
        return []
    walk = _SchemaWalk(old, new, results)
    try:
        changes = list(walk.compare_nodes(old, new, label, 0, top=True))[:_MAX_FIELDS]
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError):
        # Untrusted schemas hold anything anywhere; what is no schema cannot be shown to be safe.
        changes = [
            SchemaChange(label, "breaking", "it differs, and is malformed beyond comparison")
        ]
    changes += _find_unusable(old, new, label)
    return changes or [
        SchemaChange(label, "wording", "written in another way; it accepts the same")
    ]


def _find_unusable(old: Schema, new: Schema, label: str) -> list[SchemaChange]:
    """What speaks against the new schema as a whole, whatever its parts say."""
    lost = find_lost_references(new) - find_lost_references(old)
    if lost:
        why = f"a $ref leads nowhere: {min(lost)[:80]}"
        return [SchemaChange(f"{label}.$ref", "breaking", why)]
    before, after = find_dialect(old)[0], find_dialect(new)[0]
    if before is not None and after is not None and before is not after:
        return [
            SchemaChange(label, "breaking", "it can only be read in another draft of JSON Schema")
        ]
    return []


class _SchemaWalk:
    def __init__(self, old_root: Schema, new_root: Schema, results: bool) -> None:
        self.results = results
        # The side whose values must stay right comes first: of results these are the new ones.
        was, now = (new_root, old_root) if results else (old_root, new_root)
        self.proof = AcceptanceProof(was, now, calls=not results)
        self._under: set[tuple[int, int]] = set()
        self._left = _MAX_NODES

    def compare_nodes(
        self, old: Any, new: Any, path: str, depth: int, top: bool = False
    ) -> Iterator[SchemaChange]:
        """The findings at and below one schema, in line with the proof for the whole of it."""
        spend_steps()
        was, now = self._turn_sides(old, new)
        was, now = self.proof.fold_before(was), self.proof.follow_after(now)
        old, new = self._turn_sides(was, now)
        pair = (id(old), id(new))
        if pair in self._under or self.proof.is_alike(was, now):
            return
        safe = self.proof.accepts(was, now, top=top)
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            yield self._build_cut_short(path, safe)
            return
        self._under.add(pair)
        changes = list(self._compare_fields(old, new, path, depth, top))
        self._under.discard(pair)
        if safe:
            changes = [self._ease_finding(change) for change in changes]
        elif not any(change.cls == "breaking" for change in changes):
            own_paths = {f"{path}.{key}" for key in old.keys() | new.keys()}
            changes = [
                _harden_finding(change) if change.path in own_paths else change
                for change in changes
            ]
            if not any(change.cls == "breaking" for change in changes):
                changes.append(self._build_cut_short(path, safe))
        yield from changes

    def _turn_sides(self, old: Any, new: Any) -> tuple[Any, Any]:
        return (new, old) if self.results else (old, new)

    def _build_cut_short(self, path: str, safe: bool) -> SchemaChange:
        cls = "compatible" if safe else "breaking"
        return SchemaChange(
            path, cls, "it differs deeper inside" + ("" if safe else ", maybe stricter")
        )

    def _ease_finding(self, change: SchemaChange) -> SchemaChange:
        # What is valid is not all: a reader misses a field, a server heeds a word of its own.
        stays = change.path.endswith(".nullable") or (self.results and change.why == _GONE)
        return (
            replace(change, cls="compatible") if change.cls == "breaking" and not stays else change
        )

    def _compare_fields(
        self, old: Schema, new: Schema, path: str, depth: int, top: bool
    ) -> Iterator[SchemaChange]:
        was, now = self._turn_sides(old, new)
        scope = self.proof.declare_scope(was, now, top)
        yield from _compare_texts(old, new, path)
        before, after = _read_properties(old), _read_properties(new)
        needed, needs = (
            {name for name in read_list(side.get("required")) if isinstance(name, str)}
            for side in (old, new)
        )
        for name in sorted(before.keys() | after.keys() | needed | needs):
            where = f"{path}.properties{format_step(name)}"
            if name in before and name in after:
                yield from self.compare_nodes(before[name], after[name], where, depth + 1)
            elif name in before:
                yield self._classify_gone(name, old, new, where, scope)
            elif name in after:
                yield self._classify_added(name, old, new, where, scope, name in needs)
                continue
            if name in needs and name not in needed:
                cls = "compatible" if self.results else "breaking"
                yield SchemaChange(f"{where}.required", cls, "it is required now")
            elif name in needed and name not in needs and name in after:
                cls = "breaking" if self.results else "compatible"
                yield SchemaChange(f"{where}.required", cls, "it is optional now")
        yield from self._compare_spare(old, new, path, depth)
        done: set[str] = set()
        for key in sorted((old.keys() | new.keys()) - _ELSEWHERE - _WORDING - {"default"}):
            if key in done or _is_same_at(key, old, new):
                continue
            group = next((group for group in GROUPS if key in group), (key,))
            done.update(group)
            if key == "type" and top and new.get(key) == old.get(key, "object"):
                yield SchemaChange(f"{path}.type", "compatible", "arguments are always an object")
                continue
            yield from self._compare_group(group, old, new, path, depth, scope)

    def _compare_group(
        self,
        group: tuple[str, ...],
        old: Schema,
        new: Schema,
        path: str,
        depth: int,
        scope: NameScope,
    ) -> Iterator[SchemaChange]:
        """One keyword, or those that mean something only together."""
        key = group[0]
        if key == "items" and _are_mappings(old.get("items"), new.get("items")):
            yield from self.compare_nodes(old["items"], new["items"], f"{path}[]", depth + 1)
            group = ("prefixItems",)
        if key in _LISTS:
            paired = list(self._compare_paired(key, old, new, path, depth))
            if paired:
                yield from paired
                return
        differs = [k for k in group if not _is_same_at(k, old, new)]
        if not differs:
            return
        was, now = self._turn_sides(old, new)
        required_keywords = {k: now[k] for k in group if k in now}
        preserved = not required_keywords or self.proof.accepts(was, required_keywords, scope)
        for keyword in differs:
            cls = self._classify_keyword(keyword, old, new, preserved)
            yield SchemaChange(f"{path}.{keyword}", cls, _describe_change(keyword, old, new))

    def _classify_keyword(self, keyword: str, old: Schema, new: Schema, preserved: bool) -> str:
        if keyword == "nullable":  # OpenAPI's word: validators ignore it, servers do not
            was, now = self._turn_sides(old, new)
            return "breaking" if was.get(keyword) and not now.get(keyword) else "compatible"
        if keyword not in ASSERTING or (
            keyword == "enum" and _is_same_set(old.get(keyword), new.get(keyword))
        ):
            return "wording"
        return "compatible" if preserved else "breaking"

    def _compare_paired(
        self, key: str, old: Schema, new: Schema, path: str, depth: int
    ) -> Iterator[SchemaChange]:
        """Alternatives one by one, where as many changed on either side."""
        before, after = old.get(key), new.get(key)
        if not isinstance(before, list) or not isinstance(after, list):
            return
        gone = [part for part in before if not any(equals_json(part, other) for other in after)]
        come = [
            added for added in enumerate(after) if not any(equals_json(added[1], b) for b in before)
        ]
        if len(gone) == len(come) and len(before) == len(after):
            for part, (place, other) in zip(gone, come, strict=True):
                yield from self.compare_nodes(part, other, f"{path}.{key}[{place}]", depth + 1)

    def _classify_gone(
        self, name: str, old: Schema, new: Schema, where: str, scope: NameScope
    ) -> SchemaChange:
        if self.results:
            return SchemaChange(where, "breaking", _GONE)
        spare = new.get("additionalProperties")
        if spare is None or spare is False:
            preserved = spare is None and (scope.after is None or name in scope.after)
        else:
            preserved = self.proof.accepts(_read_properties(old)[name], spare)
        cls = "compatible" if preserved else "breaking"
        return SchemaChange(where, cls, "it is no longer declared" if preserved else _GONE)

    def _classify_added(
        self, name: str, old: Schema, new: Schema, where: str, scope: NameScope, needed: bool
    ) -> SchemaChange:
        if self.results:
            spare = old.get("additionalProperties", True)
            fits = self.proof.accepts(_read_properties(new)[name], spare)
            why = "new in the result" + ("" if fits else ", which was closed to it")
            return SchemaChange(where, "compatible" if fits else "breaking", why)
        if needed:
            return SchemaChange(where, "breaking", "new and required")
        if self.proof.takes(name, old, new, scope):
            return SchemaChange(where, "compatible", "new and optional")
        return SchemaChange(
            where, "breaking", "any value could be given under this name; now it is set"
        )

    def _compare_spare(
        self, old: Schema, new: Schema, path: str, depth: int
    ) -> Iterator[SchemaChange]:
        key = "additionalProperties"
        before, after = old.get(key), new.get(key)
        if equals_json(before, after):
            return
        where = f"{path}.{key}"
        if _are_mappings(before, after):
            yield from self.compare_nodes(before, after, where, depth + 1)
            return
        was, now = self._turn_sides(before, after)
        if self.results or now is not None:
            preserved = self.proof.accepts(
                True if was is None else was, True if now is None else now, NameScope(None, None)
            )
        else:
            preserved = (
                was is False
            )  # explicit before and silent now: unknown arguments are flaws again
        why = _describe_change(key, old, new)
        yield SchemaChange(where, "compatible" if preserved else "breaking", why)


_GONE = "it is gone"


def _compare_texts(old: Schema, new: Schema, path: str) -> Iterator[SchemaChange]:
    for key in sorted((old.keys() | new.keys()) & (_WORDING | {"default"})):
        if _is_same_at(key, old, new):
            continue
        why = _describe_change(key, old, new)
        if key == "default":
            why += "; a call without it is still right but means something else"
        cls = "compatible" if key == "default" else "wording"
        yield SchemaChange(f"{path}.{key}", cls, why)


def _is_same_at(key: str, old: Schema, new: Schema) -> bool:
    return (key in old) == (key in new) and equals_json(old.get(key), new.get(key))


def _harden_finding(change: SchemaChange) -> SchemaChange:
    if change.cls != "compatible" or change.path.endswith(".default"):
        return change
    return replace(change, cls="breaking", why=f"{change.why}; not shown to accept all that it did")


def _read_properties(schema: Schema) -> JsonObject:
    return read_mapping(schema.get("properties"))


def _are_mappings(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _is_same_set(old: Any, new: Any) -> bool:
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    return {json.dumps(v, sort_keys=True) for v in old} == {
        json.dumps(v, sort_keys=True) for v in new
    }


def format_step(name: str) -> str:
    """One name as a step of a path."""
    if _PLAIN_NAME.fullmatch(name):
        return f".{name}"
    return f"[{json.dumps(name[:80], ensure_ascii=False)}]"


def _describe_change(key: str, old: Schema, new: Schema) -> str:
    if key not in old:
        return f"new: {_shorten_value(new[key])}"
    if key not in new:
        return f"{_shorten_value(old[key])} is gone"
    return f"{_shorten_value(old[key])} became {_shorten_value(new[key])}"


def _shorten_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return shorten_text(text, 60)


_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
_PRESUMED = {  # what the protocol says a client must assume
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}


def compare_annotations(old: JsonObject, new: JsonObject) -> list[SchemaChange]:
    """The class of each hint that differs.

    A promise of harmlessness that is withdrawn is suspicious, as clients let such tools run
    unasked; so is one made against the tool's own word. Repeating a call may do harm once
    `idempotentHint` is withdrawn: breaking. A first promise, or a default spelt out, is compatible.
    """
    changes = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if key in old and key in new and was is now:
            continue
        if json.dumps(was, sort_keys=True) != json.dumps(now, sort_keys=True):
            cls, why = _classify_hint(key, was, now)
            changes.append(SchemaChange(f"annotations{format_step(key)}", cls, why))
    return changes


def _classify_hint(key: str, was: Any, now: Any) -> tuple[str, str]:
    change = f"{json.dumps(was)} became {json.dumps(now)}"[:200].replace("null", "nothing")
    if key not in _PRESUMED:
        return "wording", change
    before = was if isinstance(was, bool) else _PRESUMED[key]
    after = now if isinstance(now, bool) else _PRESUMED[key]
    if before == after:
        return "compatible", f"{change}: the same, spelt out or left to the default"
    if key == "idempotentHint":
        return ("breaking", f"{change}: a call may no longer be repeated") if before else (
            "compatible", change)  # fmt: skip
    if before == _HARMLESS[key]:
        return "suspicious", f"{change}: it no longer promises to be harmless"
    if isinstance(was, bool) and key != "openWorldHint":
        return "suspicious", f"{change}: it calls itself harmless against its own word"
    return "compatible", change
