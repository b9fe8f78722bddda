"""What changed between two lists of tools, and how much it matters to a caller.

Belongs here: pairing tools across the two lists (a rename is recognised by its body), comparing
texts and hints, and the class of each change. Pure functions.
Does not belong here: walking schemas (`schema_diff.py`), and a full scan for poisoned text: here
only text that *became* alarming between two versions counts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from assets.contracts.canonical import ContractError, contract
from assets.contracts.schema_diff import compare, same
from assets.contracts.schemas import property_schemas

RENAME_THRESHOLD = 0.8
CLASSES = ("wording", "compatible", "breaking", "suspicious")  # mildest first

_SHAPES = re.compile(
    r"<\s*(important|system|secret|instructions?)\s*>"
    r"|\b(ignore|disregard|forget)\b.{0,40}\b(previous|prior|above|other|all)\b.{0,30}\binstruction"
    r"|\bdo not (tell|mention|inform|reveal|notify)\b|\bwithout (telling|informing|notifying)\b"
    r"|~/\.ssh|id_rsa|/etc/passwd|\.aws/credentials|\bmcp\.json\b"
    r"|\bbefore (using|calling) (this|any|other)\b.{0,60}\b(read|send|call|pass|include)\b"
    r"|[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]|\x1b\[",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Change:
    """One tool that differs.

    cls: suspicious (text or hints turned alarming), breaking (a call that was right may fail),
    compatible (every right call stays right) or wording. fields: `name`, `added`, `removed`,
    `description`, `inputSchema.limit.maximum`, … sorted.
    """

    tool: str
    cls: str
    fields: tuple[str, ...]
    renamed_from: str | None = None


def diff(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Every change from one `tools/list` to the next, sorted by tool name.

    Takes raw tools or contracts. A tool without a usable contract counts as absent; of two tools
    with one name the first counts.
    """
    before, after = _by_name(old), _by_name(new)
    renames = _renames(
        {name: body for name, body in before.items() if name not in after},
        {name: body for name, body in after.items() if name not in before},
    )
    changes = []
    for name in sorted(before.keys() | after.keys()):
        if name in renames.values():
            continue
        if name not in after:
            changes.append(Change(name, "breaking", ("removed",)))
            continue
        origin = renames.get(name, name)
        if origin not in before:
            changes.append(_added(after[name]))
        elif before[origin] != after[name]:
            changes.append(_changed(before[origin], after[name]))
    return changes


def _by_name(tools: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for tool in tools:
        try:
            body = contract(tool)
        except ContractError:
            continue
        found.setdefault(body["name"], body)
    return found


def _added(body: Mapping[str, Any]) -> Change:
    cls = "suspicious" if _alarms(body) else "compatible"
    return Change(body["name"], cls, ("added",))


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change:
    found: dict[str, str] = {}
    if old["name"] != new["name"]:
        found["name"] = "breaking"
    for field in ("title", "description"):
        if old.get(field) != new.get(field):
            found[field] = "wording"
    found.update(_annotation_changes(old.get("annotations") or {}, new.get("annotations") or {}))
    found.update(compare(old["inputSchema"], new["inputSchema"], "inputSchema"))
    found.update(_output_changes(old.get("outputSchema"), new.get("outputSchema")))
    if _alarms(new) - _alarms(old):
        found["text"] = "suspicious"
    cls = max(found.values(), key=CLASSES.index, default="wording")
    renamed = old["name"] if old["name"] != new["name"] else None
    return Change(new["name"], cls, tuple(sorted(found)), renamed)


def _annotation_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """A tool that stops promising to be harmless is suspicious; the rest is a hint."""
    found = {}
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) == new.get(key):
            continue
        bolder = (key == "readOnlyHint" and old.get(key) is True) or (
            key == "destructiveHint" and old.get(key) is False
        )
        cls = "wording" if key == "title" else "suspicious" if bolder else "compatible"
        found[f"annotations.{key}"] = cls
    return found


def _output_changes(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, str]:
    """For a result the roles are swapped: the old reader must know what the new tool returns."""
    if old is None or new is None:
        if old is new:
            return {}
        return {"outputSchema": "breaking" if new is None else "compatible"}
    known = property_schemas(old, old)
    return {
        path: "compatible" if _is_addition(path, known) else cls
        for path, cls in compare(new, old, "outputSchema").items()
    }


def _is_addition(path: str, known: Mapping[str, Any]) -> bool:
    """A field the old reader never knew is no harm to it."""
    name = path.removeprefix("outputSchema.properties.")
    return name != path and "." not in name and name not in known


def _renames(
    gone: Mapping[str, Mapping[str, Any]], come: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """new name -> old name, most similar bodies first; each name is used once."""
    scored = sorted(
        (
            (-similarity(old_body, new_body), new, old)
            for old, old_body in gone.items()
            for new, new_body in come.items()
        ),
    )
    renames: dict[str, str] = {}
    taken: set[str] = set()
    for score, new, old in scored:
        if -score < RENAME_THRESHOLD:
            break
        if new not in renames and old not in taken:
            renames[new] = old
            taken.add(old)
    return renames


def similarity(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """0..1: how alike two tools are apart from their names (parameters and description)."""
    params_a, params_b = (
        property_schemas(a["inputSchema"], a["inputSchema"]),
        property_schemas(b["inputSchema"], b["inputSchema"]),
    )
    text_a, text_b = a.get("description", ""), b.get("description", "")
    if not params_a and not params_b and not text_a and not text_b:
        return 0.0  # two empty bodies say nothing about each other
    names = params_a.keys() | params_b.keys()
    alike = sum(same(params_a.get(name), params_b.get(name)) for name in names)
    shared = len(params_a.keys() & params_b.keys())
    params = (alike + shared) / (2 * len(names)) if names else 1.0
    ratio = SequenceMatcher(
        None, text_a[:600].split(), text_b[:600].split(), autojunk=False
    ).ratio()
    text = 1.0 if text_a == text_b else ratio
    # Without parameters only the text can tell; short texts ("Get user") prove little.
    weight = 0.5 if names else 0.2 if text == 1.0 and len(text_a) < 20 else 0.0
    return weight * params + (1 - weight) * text if names or len(text_a) >= 20 else 0.5 * text


def _alarms(body: Mapping[str, Any]) -> set[str]:
    found = set()
    for text in _texts(body):
        found.update(match.group(0).lower() for match in _SHAPES.finditer(text))
    return found


def _texts(value: Any) -> Iterable[str]:
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, str):
            yield current
        elif isinstance(current, Mapping):
            stack.extend(current.keys())
            stack.extend(current.values())
        elif isinstance(current, Sequence):
            stack.extend(current)
