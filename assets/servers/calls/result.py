"""The result of a call, its kinds of failure, and the limits of calling."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from assets.servers.probe.failure_kinds import KINDS, Blame, FailureKind, ProbeFailure, read_kinds

if TYPE_CHECKING:
    from assets.contracts.scan.rule_table import ScanFinding

Status = Literal["ok", "tool_error", "invalid_arguments", "failed"]
Problem = dict[str, Any]

# What can go wrong with a call besides what can go wrong with a launch.
CALL_KINDS = read_kinds(__file__)


@dataclass(frozen=True)
class CallResult:
    """What one call came to.

    status: `ok`; `tool_error`: the server answered that it failed; `invalid_arguments`: nothing was
    sent; `failed`: there is no answer. content: MCP content blocks as JSON, scrubbed and cut.
    error_kind: of the taxonomy or CALL_KINDS. hint: what was found and what to do. blame: who has
    to fix it. cut: part of the answer is left out for its size. seconds: all of it, with a launch
    where there was one. problems: what is wrong with the arguments, or (status ok) with the
    structured content against its schema. findings: signs of injection in any of its texts, and
    keys that were taken out (`content.py`); unread: more was answered than is scanned. What has
    a high one, or lies beyond, is in no prompt or row of ours.
    refused: hosts that the server asked for meanwhile and was not granted. code: of the JSON-RPC
    error that it answered. offline, local, reached: how it was launched, as `find_fault` takes
    them.
    """

    status: Status
    content: list[dict[str, Any]] = field(default_factory=list)
    structured: dict[str, Any] | None = None
    error_kind: str | None = None
    hint: str | None = None
    blame: Blame | None = None
    cut: bool = False
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    findings: tuple["ScanFinding", ...] = ()
    unread: bool = False
    refused: tuple[str, ...] = ()
    code: int | None = None
    offline: bool = False
    local: bool = True
    reached: tuple[str, ...] = ()

    @property
    def alarming(self) -> list[str]:
        """The rules that its texts break gravely."""
        return sorted({finding.rule for finding in self.findings if finding.severity == "high"})


@dataclass(frozen=True)
class WarmSettings:
    """What a user can set of servers that are kept running: how many at once (sessions), and how
    long one that nobody asks (idle_s)."""

    sessions: Annotated[int, Field(ge=1)] = 4
    idle_s: Annotated[float, Field(ge=0)] = 300.0


@dataclass(frozen=True)
class CallLimits(WarmSettings):
    """share: how many of the sessions one owner is sure of, and may have at work; None for all.
    life_s: how long any server is kept. launch_s: how long a call waits for a server to start
    (installing goes on behind it). timeout_s: the longest that a call may ask for. message_mb: of
    one answer. text_kb, media_mb: of one content block; total_mb, blocks: of an answer's content.
    structured_kb: of structured content. arguments_kb: of a call's arguments. ping_s: what a server
    that let a call time out has to prove that it lives.
    """

    share: int | None = None
    life_s: float = 1800.0
    launch_s: float = 90.0
    timeout_s: float = 300.0
    ping_s: float = 2.0
    message_mb: int = 16
    text_kb: int = 256
    media_mb: int = 4
    total_mb: int = 8
    structured_kb: int = 512
    blocks: int = 100
    arguments_kb: int = 1024


class CallFailed(Exception):
    """A call without an answer: kind, what was found and what to do.

    sent: whether the request may have reached the server; only one that did not may be repeated.
    """

    def __init__(self, kind: str, detail: str, *, fix: str = "", sent: bool = True) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.sent = kind, detail, sent
        self.fix = fix or find_kind(kind).hint
        self.may_be_sse = False  # a refusal behind which an older remote server may stand

    @classmethod
    def of(cls, failure: ProbeFailure, *, sent: bool = True) -> "CallFailed":
        """A failure of the taxonomy, with the fix it brings."""
        fix = failure.hint.removeprefix(f"{failure.detail}: ")
        return cls(failure.kind, failure.detail, fix=fix, sent=sent)

    @property
    def hint(self) -> str:
        """What was found and what to do, in one line."""
        return f"{self.detail}: {self.fix}" if self.detail else self.fix


def find_kind(kind: str) -> FailureKind:
    """What to do about a kind of failure, and whose it is to do."""
    return CALL_KINDS.get(kind) or KINDS[kind]
