"""Which tools may be answered at all: allowed, not excluded, not blocked."""

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from assets.contracts.tool_id import compile_globs
from serving.index.errors import IndexBroken
from serving.index.model import Index

_KEPT = 64  # masks of allow-lists that are remembered; one is a byte a tool


@dataclass(frozen=True)
class Blocked:
    """Contract digests and tool ids that are never answered."""

    digests: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()


def read_blocked(place: Path) -> Blocked:
    """`<place>/router/BLOCKED.json`, nothing where there is none. Raises IndexBroken: what cannot
    be read must not count as nothing blocked."""
    path = place / "router" / "BLOCKED.json"
    try:
        held = json.loads(path.read_bytes())
        digests, tools = (
            frozenset(map(str, held.get(name) or ())) for name in ("digests", "tools")
        )
    except FileNotFoundError:
        return Blocked()
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise IndexBroken(
            f"{path}: {type(error).__name__}: {error}; expected"
            ' {"digests": [...], "tools": [...]}: write it again, or delete it if nothing is held'
        ) from error
    return Blocked(digests, tools)


class Eligible:
    """Masks of one index under one set of blocked tools. Thread-safe; allow-lists are cached."""

    def __init__(self, index: Index, blocked: Blocked) -> None:
        self._index, self._lock = index, Lock()
        self._masks: OrderedDict[tuple[str, ...], np.ndarray] = OrderedDict()
        self._open = np.array(
            [
                tool.contract_digest not in blocked.digests and tool.tool_id not in blocked.tools
                for tool in index.tools
            ],
            bool,
        )
        self.all_open = bool(self._open.all())

    def may_answer(self, place: int) -> bool:
        """Whether the tool at a place is not blocked."""
        return bool(self._open[place])

    def mask(self, allowed: tuple[str, ...] | None, exclude: Iterable[str]) -> np.ndarray | None:
        """True where a tool may be answered; None when all may."""
        out = [at for name in exclude if (at := self._index.place_of(name)) is not None]
        if allowed is None and not out:
            return None if self.all_open else self._open
        mask = (self._open if allowed is None else self._match_allowed(tuple(allowed))).copy()
        mask[out] = False
        return mask

    def _match_allowed(self, globs: tuple[str, ...]) -> np.ndarray:
        with self._lock:
            if globs in self._masks:
                self._masks.move_to_end(globs)
                return self._masks[globs]
        mask = self._open & self._match_globs(globs)
        with self._lock:
            self._masks[globs] = mask
            while len(self._masks) > _KEPT:
                self._masks.popitem(last=False)
        return mask

    def _match_globs(self, globs: tuple[str, ...]) -> np.ndarray:
        matches = compile_globs(globs)
        return np.array([matches(tool.server_id, tool.tool) for tool in self._index.tools], bool)
