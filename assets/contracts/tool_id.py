"""The id of one tool of one server, as files, indexes and clients write it: `server_id::tool`.

The one place that writes and reads ids. A server id stands as it is, whatever it holds; in the
tool's name a colon that begins it or follows another one is written `%3A` (and a `%` that would
then read as such a code `%25`), so that the last `::` is the one between the two. Names that are
usual are written as they are; no two pairs share a text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

_SEPARATOR = "::"
_ADDRESS = re.compile(r"://\[[0-9a-fA-F:.]+\]")  # brackets that are no class of a glob
_CODES = {":": "%3A", "%": "%25"}
_CODED = re.compile(r"(?<![^:]):|%(?=3A|25)")
_CODE = re.compile("%3A|%25")
_READ = {code: char for char, code in _CODES.items()}


class BadToolId(ValueError):
    """A text that names no tool of a server."""


class ToolId(NamedTuple):
    """A tool of a server; its text is unique, and sorts by server."""

    server_id: str
    tool: str

    def __str__(self) -> str:
        tool = self.tool
        if ":" in tool or "%" in tool:
            tool = _CODED.sub(lambda match: _CODES[match[0]], tool)
        return f"{self.server_id}{_SEPARATOR}{tool}"

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "ToolId":
        """The id in the columns `server_id` and `tool` of a row."""
        return cls(row["server_id"], row["tool"])

    @classmethod
    def parse(cls, text: str) -> "ToolId":
        """The id that a text writes, parted at its last `::` (an address of a server may hold one).

        Raises BadToolId.
        """
        server_id, separator, tool = text.rpartition(_SEPARATOR)
        if not (separator and tool):
            raise BadToolId(f"{text[:120]!r} is no tool id, expected <server_id>::<tool>")
        return cls(server_id, _CODE.sub(lambda match: _READ[match[0]], tool))


def compile_globs(globs: Sequence[str]) -> Callable[[str, str], bool]:
    """Whether a (server id, tool) is named by one of these ids or globs over ids.

    A glob is parted as an id is, so that `npm:files::*` means the tools of that one server and not
    those of a server `npm:files::more`; one without `::` is held against the whole id.
    """
    split_globs = [glob.rpartition(_SEPARATOR) for glob in globs]
    heads = [(head, _match_any([head]), tail) for head, separator, tail in split_globs if separator]
    whole = _match_any([tail for _, separator, tail in split_globs if not separator])
    exact_ids, tails = frozenset(globs), dict[str, Callable[[str], object]]()

    def matches(server_id: str, tool: str) -> bool:
        if server_id not in tails:
            fit = [
                tail
                for head, match, tail in heads
                if match(server_id) or (head == server_id and _ADDRESS.search(head))
            ]
            tails[server_id] = _match_any(fit)
        text = str(ToolId(server_id, tool))
        written = text[len(server_id) + len(_SEPARATOR) :]
        return bool(text in exact_ids or tails[server_id](written) or whole(text))

    return matches


def _match_any(globs: Sequence[str]) -> Callable[[str], object]:
    if not globs:
        return lambda _: None
    return re.compile("|".join(map(translate, globs))).match
