"""One call, rewritten from the contract it was written for to the one that stands now.

What moves: a renamed parameter; one that went into or out of a nested object; a renamed nested
object; a single value where a list of such values is taken now (not a text with commas in it: that
was a list already). What stays as it is: everything else that the new schema still accepts (a new
default, a new option, a wider enum, type or limit). Whatever else there is, the call cannot be
carried over. No value is ever made up, dropped or changed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.schema.reading import json_type, property_schemas, resolve
from assets.contracts.schema.shapes import kinds_of
from assets.contracts.validate import validate_call
from assets.synthesis.writing.migration.parameter_renames import (
    ALIKE,
    container_alike,
    likeness,
    opposed,
)
from warehouse.storage.digest import canonical_json

Json = Any
Schema = Mapping[str, Any]
Path = tuple[str, ...]
_DEEPEST = 5
_MOST = 400  # parameters of one schema that are paired; beyond it each stays where it is
_SEVERAL = re.compile(r"[,;|\n]")


class Unmovable(ValueError):
    """Why a row cannot be carried over, in words for the list of retired rows."""


@dataclass(frozen=True)
class Side:
    """One schema with its root, and its parameters by path (objects opened, lists not)."""

    schema: Schema
    root: Schema
    leaves: Mapping[Path, Schema]
    inner: frozenset[Path]

    @classmethod
    def of(cls, schema: Schema, root: Schema | None = None) -> "Side":
        root = schema if root is None else root
        leaves: dict[Path, Schema] = {}
        inner: set[Path] = set()
        _open(schema, root, (), leaves, inner)
        return cls(schema, root, leaves, frozenset(inner))


def rewritten(old: Mapping[str, Json], new: Mapping[str, Json], arguments: Json) -> Json:
    """The arguments as the new contract takes them. Raises Unmovable with the reason.

    The result fits the new contract and holds the same values, each once.
    """
    moved = carried(old, new, arguments)
    flaws = validate_call(new, moved)
    if flaws:
        raise Unmovable(
            f"{flaws[0].kind} at {flaws[0].path or 'the call'}: {flaws[0].message}"[:200]
        )
    return moved


def carried(old: Mapping[str, Json], new: Mapping[str, Json], arguments: Json) -> Json:
    """As `rewritten`, but what does not fit the new contract is not looked at: a call that was
    wrong on purpose stays wrong."""
    if not isinstance(arguments, Mapping):
        return arguments
    moved = _object(Side.of(old["inputSchema"]), Side.of(new["inputSchema"]), arguments, 0)
    if _values(arguments) != _values(moved):
        raise Unmovable("its values would not all be carried over")
    return moved


def moves(before: Side, after: Side) -> dict[Path, Path]:
    """Old path -> new path of every parameter that plainly went elsewhere, one to one."""
    gone = [path for path in before.leaves if not _stays(path, after)]
    come = [path for path in after.leaves if not _stays(path, before)]
    if not gone or len(gone) * len(come) > _MOST * _MOST:
        return {}
    scored = {
        (path, other): score
        for path in gone
        for other in come
        if (score := _score(before, path, after, other)) >= ALIKE
    }
    return {pair[0]: pair[1] for pair, score in scored.items() if _alone(pair, score, scored)}


def renamed_names(before: Side, after: Side) -> dict[str, str]:
    """Top-level name -> the top-level name under which its values stand now."""
    return {path[0]: other[0] for path, other in moves(before, after).items()}


def _alone(
    pair: tuple[Path, Path], score: float, scored: Mapping[tuple[Path, Path], float]
) -> bool:
    """Whether no other pairing of either side comes near."""
    return all(
        other == pair or value < score - 0.04
        for other, value in scored.items()
        if other[0] == pair[0] or other[1] == pair[1]
    )


def _score(before: Side, path: Path, after: Side, other: Path) -> float:
    old, new = before.leaves[path], after.leaves[other]
    if path[:-1] == other[:-1]:
        return likeness(path[-1], old, other[-1], new)
    if path[-1] != other[-1]:
        return 0.0  # moved and renamed at once: nobody can tell
    alike = likeness(path[-1], old, other[-1], new)
    if container_alike(path[:-1], other[:-1]):
        return alike
    same_text = bool(old.get("description")) and old.get("description") == new.get("description")
    return alike if same_text else 0.0


def _stays(path: Path, side: Side) -> bool:
    """Whether a path still means a place of the other side: declared, or inside a free-form one."""
    if path in side.leaves or path in side.inner:
        return True
    return any(
        path[:cut] in side.leaves and "object" in kinds_of(side.leaves[path[:cut]])
        for cut in range(1, len(path))
    )


def _object(before: Side, after: Side, value: Mapping[str, Json], depth: int) -> dict[str, Json]:
    went = moves(before, after)
    out: dict[str, Json] = {}
    for path, leaf in _leaves(value, before, ()):
        target = went.get(path, path)
        old = before.leaves.get(path)
        new = after.leaves.get(target)
        if old is not None and target == path and not _stays(path, after) and _closed(path, after):
            raise Unmovable(f"parameter {'.'.join(path)} is gone")
        if old is None and path not in before.inner and new is not None:
            raise Unmovable(f"{'.'.join(path)} was free to be anything and is declared now")
        if old is not None and new is not None:
            if opposed(path[-1], old, target[-1], new):
                raise Unmovable(f"parameter {'.'.join(path)} means something else now")
            leaf = _value(before, old, after, new, leaf, depth)
        _put(out, target, leaf)
    return out


def _value(before: Side, old: Schema, after: Side, new: Schema, value: Json, depth: int) -> Json:
    if isinstance(value, list):
        return _items(before, old, after, new, value, depth)
    if kinds_of(new) != {"array"} or kinds_of(old) & {"array"} or "type" not in old:
        return value
    items = resolve(new.get("items") or {}, after.root)
    if isinstance(value, Mapping) or (isinstance(value, str) and _SEVERAL.search(value)):
        raise Unmovable("a value that may hold several became a list")
    if json_type(value) not in kinds_of(items):
        raise Unmovable("a value became a list of something else")
    return [value]


def _items(
    before: Side, old: Schema, after: Side, new: Schema, value: list[Json], depth: int
) -> list[Json]:
    of, to = old.get("items"), new.get("items")
    if depth >= _DEEPEST or not isinstance(of, Mapping) or not isinstance(to, Mapping) or of == to:
        return value
    inside = Side.of(of, before.root), Side.of(to, after.root)
    return [
        _object(*inside, item, depth + 1) if isinstance(item, Mapping) else item for item in value
    ]


def _leaves(value: Mapping[str, Json], side: Side, prefix: Path) -> Iterator[tuple[Path, Json]]:
    """(path, value) of all that a call says, objects opened where the schema opens them."""
    for name, item in value.items():
        path = (*prefix, name)
        if path in side.inner and isinstance(item, Mapping) and item:
            yield from _leaves(item, side, path)
        else:
            yield path, item


def _put(out: dict[str, Json], path: Path, value: Json) -> None:
    here = out
    for name in path[:-1]:
        here = here.setdefault(name, {})
        if not isinstance(here, dict):
            raise Unmovable(f"two values would stand at {'.'.join(path)}")
    if path[-1] in here:
        raise Unmovable(f"two values would stand at {'.'.join(path)}")
    here[path[-1]] = value


def _closed(path: Path, side: Side) -> bool:
    """Whether the object around a path takes no names but its own."""
    parent = side.schema
    for name in path[:-1]:
        parent = property_schemas(parent, side.root).get(name, {})
    spare = resolve(parent, side.root).get("additionalProperties")
    return spare is None or spare is False


def _open(
    schema: Json, root: Schema, prefix: Path, leaves: dict[Path, Schema], inner: set[Path]
) -> None:
    for name, about in property_schemas(schema, root).items():
        path, plain = (*prefix, name), resolve(about, root)
        nested = property_schemas(about, root) if len(path) < _DEEPEST else {}
        if nested and kinds_of(plain) - {"null"} == {"object"} and len(leaves) < _MOST:
            inner.add(path)
            _open(about, root, path, leaves, inner)
        else:
            leaves[path] = plain


def _values(value: Json) -> Counter[bytes]:
    """Every scalar in a value, however nested, with how often; an empty container is one too."""
    found: Counter[bytes] = Counter()
    stack = [value]
    while stack:
        node = stack.pop()
        inside = list(node.values()) if isinstance(node, Mapping) else node
        if isinstance(inside, list) and inside:
            stack.extend(inside)
        else:
            found[canonical_json(node)] += 1
    return found
