"""The id of one tool of one server, as files, indexes and clients write it: `server_id::tool`.

The one place that writes and reads ids. A server id stands as it is, whatever it holds; in the
tool's name a colon that begins it or follows another one is written `%3A` (and a `%` that would
then read as such a code `%25`), so that the last `::` is the one between the two. Names that are
usual are written as they are; no two pairs share a text.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_SEPARATOR = "::"
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
        tool = _CODED.sub(lambda found: _CODES[found[0]], self.tool)
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
        return cls(server_id, _CODE.sub(lambda found: _READ[found[0]], tool))
