"""Launch: what a command line says, and what its words leave to the user."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from assets.marketplaces.listing import LaunchFacts, Package
from warehouse.sanitize.placeholders import is_local, is_unfilled
from warehouse.sanitize.redact import redact

_FILE = re.compile(r"(?i)(?!https?://)\S.*\.(?:[cm]?[jt]s|pyw?|jar|sh|rb|php|exe|dll|go|tsx)")
FOLDER_OPTIONS = {"--directory", "--project", "--cwd", "--prefix", "-C"}


@dataclass(frozen=True)
class Launch:
    """What a command line says. `own_args` are the server's own arguments, after the package."""

    command: str | None
    args: tuple[str, ...]
    package: Package | None = None
    entry: str | None = None  # the program, where it is not the package's only one
    own_args: tuple[str, ...] = ()
    url: str | None = None  # of a bridge to a remote server
    transport: str = ""  # of that remote server, where the line says so
    headers: tuple[tuple[str, str], ...] = ()  # that the bridge sends
    env: tuple[tuple[str, str], ...] = ()  # variables the line sets or, where empty, passes on
    flags: frozenset[str] = field(default_factory=frozenset)
    reason: str | None = None  # why there is no way to launch it, else None
    local: bool = False  # it starts a program of its own host, by no package runner

    @property
    def facts(self) -> LaunchFacts:
        """What a listing keeps of it."""
        own = tuple(redact(word) for word in self.own_args)
        return LaunchFacts(own_args=own, entry=self.entry and redact(self.entry))


def change_launch(launch: Launch, flags: Iterable[str] = (), **changes: Any) -> Launch:
    """The launch with other facts, and with more flags."""
    return replace(launch, flags=launch.flags | set(flags), **changes)


def make_unnamed(launch: Launch, reason: str) -> Launch:
    return change_launch(launch, flags=find_word_flags(launch.args), reason=reason)


def find_word_flags(words: tuple[str, ...]) -> set[str]:
    flags = {"local_path"} if find_authors_path(words) is not None else set()
    return flags | ({"placeholder"} if any(is_unfilled(word) for word in words) else set())


def find_authors_path(words: tuple[str, ...]) -> str | None:
    """The first path of the author's machine among some words, or else the first program file."""
    for before, word in pairwise(("", *words)):
        if is_local(word) or (before in FOLDER_OPTIONS and not word.startswith("-")):
            return word
    return next((word for word in words if _FILE.fullmatch(word)), None)
