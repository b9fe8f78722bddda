"""A line: a running server, reached, whatever way."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from assets.servers.calls.result import CallFailed
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.transcript import Listener


class Line(Protocol):
    """What a session needs of a running server."""

    read: Any
    write: Any
    answered: bool  # the session is up: set by it

    async def over(self) -> None:
        """Returns once nothing more can come from the server."""
        ...

    def idle_s(self) -> float:
        """How long the server has visibly done nothing."""
        ...

    def busy(self, busy: bool) -> None:
        """Whether a call is under way."""
        ...

    @property
    def dead(self) -> bool: ...

    @property
    def worn(self) -> bool:
        """Whether so much of its limits is spent that it should get no further call."""
        ...

    def secrets(self) -> Mapping[str, str]:
        """What must be in no answer."""
        ...

    def refused(self) -> CallFailed | None:
        """Why the last request had no answer of MCP, where the line itself knows."""
        ...

    async def why(self, found: Failure | None) -> CallFailed:
        """Why the conversation ended. found: how it did for the session."""
        ...


Dial = Callable[[Listener], AbstractAsyncContextManager[Line]]
