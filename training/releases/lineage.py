"""Which releases led to the served one, and which a rollback leaves behind."""

from collections.abc import Iterable
from pathlib import Path

from training.releases.pointers import (
    SERVED,
    read_current_history,
)
from training.releases.release import (
    ROLLBACK,
    read_release,
    read_served,
)
from training.role import get_untrained_model


def list_lineage(home: Path) -> list[str]:
    """The releases that led to the served one, oldest first: a rollback takes away what it left."""
    stack: list[str] = []
    for line in read_current_history(home, SERVED):
        name = line.get("release")
        if line.get("by") == ROLLBACK and name in stack:
            stack = stack[: len(stack) - stack[::-1].index(name)]
        elif name and (not stack or stack[-1] != name):
            stack.append(name)
    now = read_served(home).get("release")
    return stack if not now or stack[-1:] == [now] else [*stack, now]


def list_left_releases(line: list[str], to: str, *names: str) -> list[str]:
    """The releases between the one gone back to and the served one, with those named."""
    since = line[len(line) - line[::-1].index(to) :] if to in line else []
    return [name for name in dict.fromkeys([*since, *names]) if name != to]


def collect_left_models(home: Path, gone: Iterable[str], keep: set[str]) -> dict[str, list[str]]:
    """The trained models of the releases left behind that the target does not serve."""
    found: dict[str, list[str]] = {}
    for name in gone:
        for role, model in read_release(home, name)["models"].items():
            known = found.setdefault(role, [])
            if model not in {*keep, *known, get_untrained_model(role)}:
                known.append(model)
    return {role: models for role, models in found.items() if models}
