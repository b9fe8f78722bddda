"""A line: a running server, reached, whatever way; and what is heard on it."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from assets.servers.calls.result import CallFailed
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.transcript import Listener


class CallListener(Listener):
    """Also notes that the server says its tools have changed, and which errors are its own: the
    SDK makes up others for what goes wrong with a transport."""

    def __init__(self) -> None:
        super().__init__()
        self.stale = False
        self._errors: deque[tuple[Any, Any]] = deque(maxlen=64)

    def take(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if message.get("method") == "notifications/tools/list_changed":
            self.stale = True
        self.note_error(message.get("error"))
        return super().take(message)

    def note_error(self, error: Any) -> None:
        if isinstance(error, dict):
            self._errors.append((error.get("code"), error.get("message")))

    def said(self, error: Any) -> bool:
        """Whether an error of the SDK's is one that the server sent."""
        return (error.code, error.message) in self._errors


class Line(Protocol):
    """A running server, reached: what a session needs of it."""

    read: Any
    write: Any
    listener: CallListener
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


Dial = Callable[[CallListener], AbstractAsyncContextManager[Line]]
