"""The failure taxonomy: every way a server can fail to list its tools, with a hint and a retry."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from warehouse.patterns import compile_pattern
from warehouse.storage.files import read_data

# Who has to fix a failed call: who made its arguments, the tool, the server that holds it, who
# gives the credentials, what we grant (the sandbox's limits, its network, the settings), a service
# behind the tool, Toolmill itself.
Blame = Literal["caller", "tool", "server", "credentials", "policy", "upstream", "us"]
BLAMES: tuple[Blame, ...] = get_args(Blame)
_DAY = 86_400.0
_EARLY = _DAY / 4


@dataclass(frozen=True)
class FailureKind:
    """hint: what to do. retry_days: until the first retry; it doubles with each attempt up to
    thirty days. None: a new recipe is needed, trying again changes nothing. blame: who has to fix
    it, where a call fails by it."""

    hint: str
    retry_days: float | None = None
    blame: Blame = "server"


def read_kinds(module: str) -> dict[str, FailureKind]:
    """The kinds of `failure_kinds.toml` beside a module's file."""
    kinds = read_data(module, "failure_kinds.toml")["kinds"]
    return {name: FailureKind(**fields) for name, fields in kinds.items()}


KINDS = read_kinds(__file__)


@dataclass(frozen=True)
class ProbeFailure:
    """A classified failure: `kind` is in KINDS, `detail` one line of what was found. advice: in
    place of the kind's own hint."""

    kind: str
    detail: str
    advice: str = ""

    @property
    def hint(self) -> str:
        """What was found and what to do, in one line."""
        advice = self.advice or KINDS[self.kind].hint
        return f"{self.detail}: {advice}" if self.detail else advice


class ConversationEnd(Exception):
    """A conversation is over, with this failure."""

    def __init__(self, failure: ProbeFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class PackageError(Exception):
    """A package that cannot be pinned or fetched; `kind` is in KINDS."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def compute_next_retry(kind: str, attempts: int, now: float) -> float | None:
    """When a row that failed `attempts` times is due again (epoch seconds); None: never.

    A wait of whole days ends some hours early: runs are nightly, and one that begins a minute
    sooner than that of the failure would leave the row for yet another run.
    """
    first = KINDS[kind].retry_days
    if first is None:
        return None
    wait = min(first * 2 ** max(0, attempts - 1), 30) * _DAY
    return now + (wait - _EARLY if wait >= _DAY else wait)


_WORDS: list[tuple[str, str]] = [
    (words["kind"], "|".join(words["patterns"]))
    for words in read_data(__file__, "failure_kinds.toml")["words"]
]
# The network's own codes: after a made-up key was sent, the network is what is missing.
_UNREACHED = (
    r"ENETUNREACH|EHOSTUNREACH|EAI_AGAIN|\bENOTFOUND|ECONNREFUSED|getaddrinfo|name resolution"
    r"|Connect(ion)?Error|ClientConnector|connection refused|network is unreachable"
)
_OF_NONE = compile_pattern(r"(?i)'NoneType' object has no attribute")  # a bug of any release
_LAST = compile_pattern(r"(?im)^.*\b\w*(Error|Exception|panic|fatal)\b.*$")
_RUNTIME = re.compile(r"^\s*(Node\.js v\d|\}|\]|at |\^|npm error|errno:|code:|syscall:|path:)")


def classify_last_words(stderr: str, exit_code: int | None, signal: str | None) -> ProbeFailure:
    """The kind of a server that ended by itself, from what it said and how it ended."""
    how = f"killed by {signal}" if signal else f"exit {exit_code}"
    if signal in ("SIGXCPU", "SIGXFSZ"):
        kind = "oversize" if signal == "SIGXCPU" else "disk_full"
        limit = "processor time" if signal == "SIGXCPU" else "file size"
        return ProbeFailure(kind, f"{how}, the limit on {limit}")
    cause = classify_text(stderr)
    if cause:
        return ProbeFailure(cause.kind, f"{how}, {cause.detail}")
    last = _find_last_line(stderr)
    words = f", said {last.strip()[:160]!r}" if last else ", said nothing"
    return ProbeFailure("crashed", how + words)


def classify_text(text: str) -> ProbeFailure | None:
    """The kind that a server's own words name, or None when they name none."""
    return find_words(text, [kind for kind, _ in _WORDS])


def find_words(text: str, kinds: Collection[str]) -> ProbeFailure | None:
    """The first of these kinds whose words stand in the text, or None."""
    inspected = _OF_NONE.sub(lambda match: " " * len(match[0]), text)
    for kind, words in _WORDS:
        if kind not in kinds:
            continue
        match = compile_pattern(f"(?im){words}").search(inspected)
        if match is None:
            continue
        # Where the network fails after the last word about a secret, the secret was taken.
        later = text[match.end() :]
        if kind == "needs_secret" and compile_pattern(f"(?i){_UNREACHED}").search(later):
            continue
        start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.start())
        line = text[start : end if end >= 0 else len(text)].strip()[:160]
        return ProbeFailure(kind, f"said {line!r}")
    return None


def _find_last_line(text: str) -> str:
    """The last line that says what went wrong: a stack trace ends in brackets and versions."""
    errors = [match[0] for match in _LAST.finditer(text)]
    if errors:
        return errors[-1]
    spoken_lines = [line for line in text.splitlines() if line.strip()]
    plain = [line for line in spoken_lines if not _RUNTIME.match(line)]
    return (plain or spoken_lines or [""])[-1]
