"""What a sandbox backend is: its name, whether it works here, and how it starts one launch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assets.servers.sandbox.spec import Launch, SandboxPolicy

OPT_OUT = (
    'to run servers without isolation, at your own risk, set `sandbox.backend = "none"`: their'
    " rows are marked uncertified"
)


class SandboxUnavailable(RuntimeError):
    """This host cannot sandbox: what is missing, why, how to fix it, and how to opt out."""

    def __init__(self, what: str, why: str, how: str) -> None:
        super().__init__(f"no sandbox: {what} ({why}); {how}; {OPT_OUT}")
        self.what, self.why, self.how = what, why, how


class LaunchRefused(ValueError):
    """One launch that this backend cannot start safely: what of it, why, and what to do. kind: of
    the failure taxonomy."""

    kind = "policy_denied"


class UnusableWords(LaunchRefused):
    """An argument or variable that no program can be started with."""

    kind = "no_recipe"


@dataclass(frozen=True)
class Command:
    """How one launch is started on the host. env: the started program's own, of our making: what a
    listing chose is in none of it.

    files: descriptors it inherits, ours to close once it runs. root: pid of the tree's root where
    that is no child of the started process. end: ends what outlives the killed process group.
    has_overrun: whether the kernel ended it for its memory; asked before `end`. volume: of the
    launch, to be watched.
    """

    argv: Sequence[str]
    files: Sequence[int] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    root: Callable[[], int | None] | None = None
    end: Callable[[], None] | None = None
    has_overrun: Callable[[], bool] | None = None
    volume: Path | None = None


class Backend(Protocol):
    """One way to contain a process tree."""

    @property
    def name(self) -> str: ...

    def version(self) -> str:
        """The version of the program behind it; part of the certificate."""
        ...

    def preflight(self) -> None:
        """Raises SandboxUnavailable, naming what, why and how, unless it works on this host."""
        ...

    def facts(self, policy: SandboxPolicy) -> dict[str, Any]:
        """What else decides how well it contains: filters, and what a granted network reaches."""
        ...

    def command(self, launch: Launch, policy: SandboxPolicy) -> Command:
        """How to start the launch within the policy's limits. Raises LaunchRefused."""
        ...
