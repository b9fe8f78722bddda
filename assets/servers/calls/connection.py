"""A line: a running server, reached, whatever way."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from assets.servers.calls.launch import Wanted
from assets.servers.calls.result import CallFailed
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.transcript import Listener


@dataclass(repr=False)
class Line(ABC):
    """What a session needs of a running server. answered: the session is up, set by it."""

    wanted: Wanted
    read: Any = field(default=None, init=False)
    write: Any = field(default=None, init=False)
    answered: bool = field(default=False, init=False)

    @abstractmethod
    async def over(self) -> None:
        """Returns once nothing more can come from the server."""

    def idle_s(self) -> float:
        """How long the server has visibly done nothing."""
        return 0.0

    def busy(self, busy: bool) -> None:
        """Whether a call is under way."""
        return

    @property
    @abstractmethod
    def dead(self) -> bool: ...

    @property
    @abstractmethod
    def worn(self) -> bool:
        """Whether so much of its limits is spent that it should get no further call."""

    def secrets(self) -> dict[str, str]:
        """What must be in no answer."""
        return {**self.wanted.given.env, **self.wanted.given.headers}

    def refused_hosts(self) -> Sequence[str]:
        """The hosts that the server asked for so far and was not granted."""
        return ()

    def waiting_hosts(self) -> Sequence[str]:
        """The granted hosts that owe the server an answer at this moment."""
        return ()

    def refused(self) -> CallFailed | None:
        """Why the last request had no answer of MCP, where the line itself knows."""
        return None

    @abstractmethod
    async def why(self, found: Failure | None) -> CallFailed:
        """Why the conversation ended. found: how it did for the session."""


Dial = Callable[[Listener], AbstractAsyncContextManager[Line]]
