"""What a call comes to, and the limits of calling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assets.servers.probe.failure_kinds import KINDS, Failure

Status = Literal["ok", "tool_error", "invalid_arguments", "failed"]
Blame = Literal["caller", "tool", "server", "us"]
Problem = dict[str, Any]

# What can go wrong with a call besides what can go wrong with a launch (`assets/servers/taxonomy`).
CALL_KINDS: dict[str, str] = {
    "unknown_server": "the index holds no recipe of it: search again, or build the index again",
    "contract_changed": "the server's contract is not the one that was indexed: run again"
    " and build the index, then call with what it asks for now",
    "tool_gone": "the server does not offer it any more: search for another tool",
    "timeout_call": "no answer in time: call it with less to do, or allow more time",
    "busy": "all sessions that the limits allow are at work: call again in a moment",
    "closed": "this process is ending: call again when it is back",
    "internal": "a fault of toolmill: report it",
    # Of what the server answered:
    "invalid_arguments": "the arguments do not fit the tool: fix what is named, call again",
    "tool_error": "the tool says it failed: see the content",
}


@dataclass(frozen=True)
class CallResult:
    """What one call came to.

    status: `ok`; `tool_error`: the server answered that it failed; `invalid_arguments`: nothing was
    sent; `failed`: there is no answer. content: MCP content blocks as JSON, scrubbed and cut.
    error_kind: of the taxonomy or CALL_KINDS. hint: what was found and what to do. blame: who has
    to fix it. seconds: all of it, with a launch where there was one. problems: what is wrong with
    the arguments, or (status ok) with the structured content against its schema.
    """

    status: Status
    content: list[dict[str, Any]] = field(default_factory=list)
    structured: dict[str, Any] | None = None
    error_kind: str | None = None
    hint: str | None = None
    blame: Blame | None = None
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class CallLimits:
    """sessions: how many servers are kept running at once. idle_s: how long one that nobody asks is
    kept; life_s: how long any. launch_s: how long a call waits for a server to start (installing
    goes on behind it). timeout_s: the longest that a call may ask for. message_mb: of one answer.
    text_kb, media_mb: of one content block; total_mb, blocks: of an answer's content.
    structured_kb: of structured content. arguments_kb: of a call's arguments. ping_s: what a server
    that let a call time out has to prove that it lives.
    """

    sessions: int = 4
    idle_s: float = 300.0
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


_OURS = (
    *("not_found", "fetch_failed", "build_failed", "no_recipe", "needs_secret", "needs_argument"),
    *("needs_network", "needs_software", "policy_denied", "remote_auth", "unknown_server", "busy"),
    *("closed", "internal"),
)


class CallFailed(Exception):
    """A call without an answer: kind, what was found, what to do and who has to.

    sent: whether the request may have reached the server; only one that did not may be repeated.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        fix: str = "",
        blame: Blame | None = None,
        sent: bool = True,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.sent = kind, detail, sent
        self.fix = fix or find_hint(kind)
        self.may_be_sse = False  # a refusal behind which an older remote server may stand
        self.blame: Blame = blame or ("us" if kind in _OURS else "server")

    @classmethod
    def of(cls, failure: Failure, *, sent: bool = True) -> "CallFailed":
        """A failure of the taxonomy, with the fix it brings."""
        fix = failure.hint
        if failure.detail and fix.startswith(f"{failure.detail}: "):
            fix = fix[len(failure.detail) + 2 :]
        return cls(failure.kind, failure.detail, fix=fix, sent=sent)

    @property
    def hint(self) -> str:
        """What was found and what to do, in one line."""
        return f"{self.detail}: {self.fix}" if self.detail else self.fix


def find_hint(kind: str) -> str:
    """What to do about a kind."""
    return CALL_KINDS.get(kind) or KINDS[kind].hint


def replace_fields(result: CallResult, **more: Any) -> CallResult:
    """The result with other values in some fields."""
    facts: Mapping[str, Any] = {**result.__dict__, **more}
    return CallResult(**facts)
