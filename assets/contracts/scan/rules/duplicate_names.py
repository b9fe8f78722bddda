"""Neighbours: names within one list that are the same, or look the same."""

from collections.abc import Iterator, Sequence

from assets.contracts.scan.finding import HIGH, LOW, MEDIUM, Hit, build_hit
from assets.contracts.scan.text.lookalike import fold_latin, fold_skeleton


def find_neighbours(names: Sequence[str]) -> Iterator[tuple[int, Hit]]:
    """(index of the tool, hit) for every name but the first of those that look the same."""
    seen: dict[str, int] = {}
    shapes: dict[str, int] = {}
    for index, name in enumerate(names):
        if not name:
            continue
        if name in seen:
            yield index, build_hit("name_collision", 0, len(name))
            continue
        seen[name] = index
        shape = fold_skeleton(name)
        first = shapes.setdefault(shape, index) if shape else index
        if first != index:
            severity = _choose_severity(names[first], name)
            why = "" if severity == HIGH else "differs from another tool's name in little"
            yield index, build_hit("name_lookalike", 0, len(name), severity, why)


def _choose_severity(one: str, other: str) -> str:
    """Letters of another script deceive; case, separators or digits are mostly poor taste."""
    if (
        fold_latin(one.casefold()) == fold_latin(other.casefold())
        and one.casefold() != other.casefold()
    ):
        return HIGH
    plain = ["".join(char for char in name.casefold() if char.isalnum()) for name in (one, other)]
    return LOW if plain[0] == plain[1] else MEDIUM
