"""The failure taxonomy: every way a server can fail to list its tools, with a hint and a retry."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

from warehouse.patterns import compile_pattern

# Who has to fix a failed call: who made its arguments, the tool, the server that holds it, who
# gives the credentials, what we grant (the sandbox's limits, its network, the settings), a service
# behind the tool, Toolmill itself.
Blame = Literal["caller", "tool", "server", "credentials", "policy", "upstream", "us"]
BLAMES: tuple[Blame, ...] = get_args(Blame)
_DAY = 86_400.0
_EARLY = _DAY / 4


@dataclass(frozen=True)
class FailureKind:
    """hint: what to do. retry_s: seconds until the first retry; it doubles with each attempt up to
    thirty days. None: a new recipe is needed, trying again changes nothing. blame: who has to fix
    it, where a call fails by it."""

    hint: str
    retry_s: float | None = None
    blame: Blame = "server"


KINDS: dict[str, FailureKind] = {
    "not_found": FailureKind(
        "the package or version does not exist in the registry: check the listing's name",
        3 * _DAY,
        "us",
    ),
    # Due at once: mostly it is this host's network, and its owner fixes it and runs again.
    "fetch_failed": FailureKind(
        "the download failed: check network, proxy and certificates", 0.0, "us"
    ),
    "integrity": FailureKind(
        "what was downloaded is not what was pinned: treat the package as compromised", 3 * _DAY
    ),
    "build_failed": FailureKind(
        "no ready-made package for this platform, and builds run third-party scripts",
        7 * _DAY,
        "us",
    ),
    # Due at once: nothing was learnt of the server.
    "worker_lost": FailureKind(
        "the cluster gave no result: look at its workers and run again", 0.0, "us"
    ),
    "no_recipe": FailureKind("neither listing nor package says how to start a server", None, "us"),
    "needs_secret": FailureKind(
        "the server checks its credentials before it lists tools: give it real ones",
        7 * _DAY,
        "credentials",
    ),
    "needs_confirmation": FailureKind(
        "what a listing chose runs beside your secret or grant, and a command of your own runs at"
        " all, only once you confirmed it",
        None,
        "policy",
    ),
    # Due at once: its user makes the folder, or grants another.
    "bad_grant": FailureKind("what you granted it cannot be given", 0.0, "policy"),
    "needs_argument": FailureKind(
        "the server needs an argument that the listing does not name", 7 * _DAY, "us"
    ),
    "needs_network": FailureKind(
        "the server calls out before it lists tools: grant it the network to see them",
        7 * _DAY,
        "policy",
    ),
    "needs_file": FailureKind(
        "the server reads a file that is not there: grant it the folder that holds it"
        " (`toolmill grant SERVER --folder PATH`)",
        7 * _DAY,
        "policy",
    ),
    "needs_software": FailureKind(
        "the server needs a program or library that is not here", 7 * _DAY, "policy"
    ),
    "incompatible": FailureKind(
        "a dependency or runtime has moved on since this release: take another release, or pin the"
        " dependency (`--with 'mcp<2'`)",
        7 * _DAY,
    ),
    "read_only": FailureKind(
        "the server writes outside its own home and the temporary folder", 7 * _DAY, "policy"
    ),
    "timeout_start": FailureKind(
        "no answer to `initialize` in time: it hangs or is very slow (`sandbox.start_s` gives it"
        " longer)",
        2 * _DAY,
    ),
    "timeout_list": FailureKind(
        "`initialize` was answered, `tools/list` was not (`sandbox.start_s` gives it longer)",
        2 * _DAY,
    ),
    "crashed": FailureKind(
        "the server ended before it listed its tools: see stderr_tail", 2 * _DAY
    ),
    "protocol_error": FailureKind("the server does not speak MCP on its standard output", 7 * _DAY),
    "oversize": FailureKind("more output, pages or tools than the limits allow", 7 * _DAY),
    "out_of_memory": FailureKind(
        "more memory than the sandbox grants (`sandbox.memory_mb`)", 7 * _DAY, "policy"
    ),
    "too_many_processes": FailureKind(
        "more processes or threads than the sandbox grants (`sandbox.processes`)",
        7 * _DAY,
        "policy",
    ),
    "disk_full": FailureKind(
        "more private disk than the sandbox grants (`sandbox.tmp_mb`, `sandbox.file_mb`)",
        7 * _DAY,
        "policy",
    ),
    "no_tools": FailureKind("the server runs and offers no tools", 7 * _DAY),
    "policy_denied": FailureKind("the settings do not allow this kind of server", None, "policy"),
    "remote_auth": FailureKind("the remote server asks for an account", 7 * _DAY, "credentials"),
    "remote_down": FailureKind("the remote server does not answer", _DAY),
    "internal": FailureKind(
        "a fault of this program: report it with the digest of its trace", _DAY, "us"
    ),
}


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
    first = KINDS[kind].retry_s
    if first is None:
        return None
    wait = min(first * 2 ** max(0, attempts - 1), 30 * _DAY)
    return now + (wait - _EARLY if wait >= _DAY else wait)


# The order is the precedence: a stack trace about a missing module also mentions its arguments.
_WORDS: tuple[tuple[str, str], ...] = (
    (
        "out_of_memory",
        r"heap out of memory|\bMemoryError\b|cannot allocate memory|std::bad_alloc|ENOMEM",
    ),
    (
        "too_many_processes",
        r"resource temporarily unavailable|can't start new thread|\bEAGAIN\b.*(spawn|fork)"
        r"|uv_thread_create|pthread_create failed",
    ),
    ("disk_full", r"no space left on device|\bENOSPC\b|disk quota|\bEFBIG\b|File too large"),
    (
        "incompatible",
        r"cannot import name|unexpected keyword argument|pin 'mcp<2'"
        r"|has no attribute"
        r"|ERR_PACKAGE_PATH_NOT_EXPORTED|does not provide an export named|PydanticUserError"
        r"|unsupported engine|requires (node|python)\b|requires node\.?js|needs node\.?js"
        r"|(node|python) version \S+ is not supported"
        r"|(WebSocket|File|fetch|CustomEvent) is not defined"
        r"|ERR_REQUIRE_ESM|ERR_REQUIRE_CYCLE|NODE_MODULE_VERSION|is not a constructor",
    ),
    (
        "needs_software",
        r"error while loading shared libraries|cannot open shared object|command not found"
        r"|^prlimit: failed to execute "
        r"|\bENOENT\b.*\bspawn\b|spawn \S+ ENOENT|cannot find (module|package)|ModuleNotFoundError"
        r"|ERR_MODULE_NOT_FOUND|ImportError|executable doesn't exist|execvp|git executable"
        r"|no such file or directory: '(docker|git|java|uv|npx|chrom\w+|ffmpeg|adb|kubectl|psql)'"
        r"|(not installed|could not find|unable to (find|locate)|is not available|no \w+ found)"
        r".{0,40}\b(chrom\w+|browser|docker|java|ffmpeg|libreoffice|binary|executable)\b"
        r"|\b(chrom\w+|browser|docker|java|ffmpeg|libreoffice|binary|executable)\b.{0,40}"
        r"(not installed|not found|is not available)"
        r"|could not locate the bindings file|only (supported|available|works) on (macos|windows)"
        r"|unsupported (platform|operating system)|not supported on linux|requires (macos|windows)",
    ),
    (
        "needs_argument",  # a parser's own sentence, whatever the arguments are called
        r"the following (required )?arguments (are required|were not provided)"
        r"|missing (required )?(option|flag|parameter)\b|required option\b"
        r"|missing required arguments?:|too few arguments|not enough arguments"
        r"|expected \d+ arguments?|unknown (sub)?command|invalid choice",
    ),
    (
        "needs_secret",
        r"((api|access|auth\w*|secret|bot|private|personal|bearer|client)[ _-]?"
        r"(key|token|secret|id)s?|\w+_(key|token|secret|password|pat))\b"
        r".{0,80}(required|missing|not set|not found|invalid|must|need|provide|undefined|empty"
        r"|not configured|not provided)"
        r"|(required|missing|provide|set|need|no|invalid|specify|undefined)\b.{0,60}\b\w*"
        r"(key|token|secret|credential|password|connection[ _]string)s?\b"
        r"|(credentials?|api ?key|token)\b.{0,60}"
        r"(required|missing|not (set|found|configured|provided)|invalid|expired)"
        r"|unauthori[sz]ed|\b401\b|\b403 forbidden|not authenticated"
        r"|authenticat\w+ (failed|required)"
        r"|login (failed|required)|please (log ?in|authenticate|sign in)|no (accounts?|wallet)\b",
    ),
    (
        "needs_network",
        r"ENETUNREACH|EHOSTUNREACH|EAI_AGAIN|\bENOTFOUND|ECONNREFUSED|ETIMEDOUT|ECONNRESET"
        r"|getaddrinfo|name resolution|name or service not known|no route to host"
        r"|network is unreachable|fetch failed|failed to fetch|network ?error|socket hang up"
        r"|Connect(ion)?(Error|Timeout|Refused)|connection refused|ClientConnector\w*Error"
        r"|max retries exceeded|dial tcp|could not connect|cannot connect|failed to connect"
        r"|unable to connect|failed to establish a (new )?connection|connection timed out"
        r"|unreachable",
    ),
    (
        "needs_argument",
        r"^\s*usage:|missing (required )?(positional )?arguments?|arguments? (is|are) required"
        r"|required (argument|flag)|(director|path|url|file)\w*\b.{0,40}"
        r"(is required|must be (specified|provided|set)|does not exist|not found)"
        r"|(environment|env)\b.{0,20}\bvar(iable)?s?\b.{0,60}(required|missing|not set|must)"
        r"|(required|missing|must set|please set)\b.{0,40}\b(environment|env)\b"
        r"|please (provide|specify|set)|field required|KeyError: '[A-Z][A-Z0-9_]+'"
        r"|[A-Z][A-Z0-9]*_[A-Z0-9_]+\b.{0,30}(is )?(required|missing|not set|not defined|undefined)"
        r"|\b(sub)?command (was |is )?(not (provided|given|specified)|required|missing)",
    ),
    (
        "needs_file",
        r"no such file or directory|\bENOENT\b|FileNotFoundError"
        r"|config\w*( file)? (is |was )?(not found|missing)|(missing|no) config\w*( file)?\b",
    ),
    (
        "read_only",
        r"read-only file system|\bEROFS\b|permission denied|\bEACCES\b|operation not permitted",
    ),
)
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
