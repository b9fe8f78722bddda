"""Which tool that is gone came back under another name.

The threshold is 0.8 of 1: half of the score is parameters (half of that their names, half what
their schemas share), half the words of the descriptions in their order. So a rename may go with a
third of the parameters gone or two fifths of the text rewritten, not both, and two tools that share
only a common parameter (`query`) or only a boilerplate sentence stay apart. Ties go to the name
most alike, then to the alphabet, so that the pairing never depends on the order of a list.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from assets.contracts.schema_shapes import (
    TooMuchWork,
    collect_properties,
    equals_json,
    limit_steps,
    spend_steps,
)

RENAME_THRESHOLD = 0.8
_ALL_PAIRS = 10_000  # below this every gone tool is compared with every new one
_BLOCK = 16  # above it, at most so many of those that share a text or their parameters
_MAX_STEPS = 300_000  # of one pair of lists, some 6 s
_SHORT = 20  # characters: a description below this proves little ("Get user")

Tool = Mapping[str, Any]


def find_renames(gone: Mapping[str, Tool], come: Mapping[str, Tool]) -> dict[str, str]:
    """new name -> old name, most similar bodies first; each name is used once."""
    pairs = _pair_tools(gone, come, _find_twins(gone, come))
    used = set(pairs.values())
    left = {old: body for old, body in gone.items() if old not in used}
    new = {name: body for name, body in come.items() if name not in pairs}
    with limit_steps(_MAX_STEPS):
        return pairs | _pair_tools(left, new, _list_candidates(left, new))


def _pair_tools(
    gone: Mapping[str, Tool], come: Mapping[str, Tool], candidates: Iterable[tuple[str, str]]
) -> dict[str, str]:
    scored = []
    try:
        for old, new in candidates:
            spend_steps()
            score = measure_similarity(gone[old], come[new])
            if score >= RENAME_THRESHOLD:
                names = SequenceMatcher(None, old[:200], new[:200], autojunk=False).ratio()
                scored.append((-score, -names, new, old))
    except TooMuchWork:
        pass  # those compared so far: who renames and rewrites more than that made other tools
    pairs: dict[str, str] = {}
    used_names: set[str] = set()
    for _, _, new, old in sorted(scored):
        if new not in pairs and old not in used_names:
            pairs[new] = old
            used_names.add(old)
    return pairs


def _find_twins(gone: Mapping[str, Tool], come: Mapping[str, Tool]) -> Iterator[tuple[str, str]]:
    """Pairs (old, new) that differ in nothing but the name."""
    bodies: dict[str, list[str]] = defaultdict(list)
    for new in sorted(come):
        bodies[_read_body(come[new])].append(new)
    for old in sorted(gone):
        yield from ((old, new) for new in bodies.get(_read_body(gone[old]), ())[:_BLOCK])


def _read_body(tool: Tool) -> str:
    return json.dumps({key: tool[key] for key in tool if key != "name"}, sort_keys=True)


def measure_similarity(a: Tool, b: Tool) -> float:
    """0..1: how alike two tools are apart from their names (parameters and description)."""
    params_a, params_b = _list_parameters(a), _list_parameters(b)
    text_a, text_b = a.get("description", ""), b.get("description", "")
    names = params_a.keys() | params_b.keys()
    if not names:
        weight = 1.0 if len(text_a) >= _SHORT else 0.5
        return _compare_texts(text_a, text_b, RENAME_THRESHOLD) * weight
    both = params_a.keys() & params_b.keys()
    params = sum(0.5 + 0.5 * _compare_schemas(params_a[n], params_b[n]) for n in both) / len(names)
    least = 2 * RENAME_THRESHOLD - params
    if least > 1:  # no text could lift it over the threshold
        return params / 2
    return (params + _compare_texts(text_a, text_b, least)) / 2


def _list_candidates(
    gone: Mapping[str, Tool], come: Mapping[str, Tool]
) -> Iterator[tuple[str, str]]:
    """Pairs worth a comparison, (old, new)."""
    if len(gone) * len(come) <= _ALL_PAIRS:
        yield from ((old, new) for old in sorted(gone) for new in sorted(come))
        return
    blocks: dict[Any, list[str]] = defaultdict(list)
    for new in sorted(come):
        for key in _build_blocks(come[new]):
            blocks[key].append(new)
    for old in sorted(gone):
        near = [new for key in _build_blocks(gone[old]) for new in blocks.get(key, ())[:_BLOCK]]
        yield from ((old, new) for new in dict.fromkeys(near))


def _build_blocks(tool: Tool) -> Iterator[Any]:
    text, names = tool.get("description", ""), frozenset(_list_parameters(tool))
    yield (text, names)
    if len(text) >= _SHORT:
        yield text
    if names:
        yield names


def _list_parameters(tool: Tool) -> dict[str, Any]:
    return collect_properties(tool["inputSchema"], tool["inputSchema"])


def _compare_schemas(a: Any, b: Any) -> float:
    """The share of keywords that both have with the same value."""
    if equals_json(a, b):
        return 1.0
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return 0.0
    return sum(equals_json(a[key], b[key]) for key in a.keys() & b.keys()) / len(
        a.keys() | b.keys()
    )


def _compare_texts(a: str, b: str, least: float) -> float:
    """How alike two texts are by their words; where it is below `least`, at most that alike."""
    if a == b:
        return 1.0
    words = a[:600].split(), b[:600].split()
    matcher = SequenceMatcher(None, *words, autojunk=False)
    most = matcher.quick_ratio()
    if most < least:
        return most
    spend_steps(len(words[0]) * len(words[1]) // 100)
    return matcher.ratio()
