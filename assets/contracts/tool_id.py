"""The id of one tool of one server, as files, indexes and clients write it: `server_id::tool`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

_SEPARATOR = "::"


class BadToolId(ValueError):
    """A text that names no tool of a server."""


class ToolId(NamedTuple):
    """A tool of a server; its text is unique, and sorts by server."""

    server_id: str
    tool: str

    def __str__(self) -> str:
        return f"{self.server_id}{_SEPARATOR}{self.tool}"

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
        return cls(server_id, tool)
