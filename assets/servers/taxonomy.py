"""The failure taxonomy: every way a server can fail to list its tools, with a hint and a retry.

Belongs here: the kinds, what a person can do about each, how long to wait before trying again, and
telling from a server's last words (exit, stderr) which kind it was.
Does not belong here: noticing the failure (`fetch.py`, `probe.py`).
"""

import re
from dataclasses import dataclass

_DAY = 86_400.0


@dataclass(frozen=True)
class Kind:
    """hint: what to do. retry_s: seconds until the first retry; it doubles with each attempt up to
    thirty days. None: a new recipe is needed, trying again changes nothing."""

    hint: str
    retry_s: float | None


KINDS: dict[str, Kind] = {
    "not_found": Kind(
        "the package or version does not exist in the registry: check the listing's name", 3 * _DAY
    ),
    # Due at once: mostly it is this host's network, and its owner mends it and runs again.
    "fetch_failed": Kind("the download failed: check network, proxy and certificates", 0.0),
    "integrity": Kind(
        "what was downloaded is not what was pinned: treat the package as compromised", 3 * _DAY
    ),
    "build_failed": Kind(
        "no ready-made package for this platform, and builds run strangers' scripts", 7 * _DAY
    ),
    "no_recipe": Kind("neither listing nor package says how to start a server", None),
    "needs_secret": Kind(
        "the server checks its credentials before it lists tools: give it real ones", 7 * _DAY
    ),
    "needs_argument": Kind("the server needs an argument that the listing does not name", 7 * _DAY),
    "needs_network": Kind(
        "the server calls out before it lists tools: grant it the network to see them", 7 * _DAY
    ),
    "needs_software": Kind("the server needs a program or library that is not here", 7 * _DAY),
    "timeout_start": Kind("no answer to `initialize` in time: it hangs or is very slow", 2 * _DAY),
    "timeout_list": Kind("`initialize` was answered, `tools/list` was not", 2 * _DAY),
    "crashed": Kind("the server ended before it listed its tools: see stderr_tail", 2 * _DAY),
    "protocol_error": Kind("the server does not speak MCP on its standard output", 7 * _DAY),
    "oversize": Kind("more output, pages or tools than the limits allow", 7 * _DAY),
    "out_of_memory": Kind("more memory than the sandbox grants", 7 * _DAY),
    "too_many_processes": Kind("more processes or threads than the sandbox grants", 7 * _DAY),
    "disk_full": Kind("more private disk than the sandbox grants", 7 * _DAY),
    "no_tools": Kind("the server runs and offers no tools", 7 * _DAY),
    "policy_denied": Kind("the settings do not allow this kind of server", None),
    "remote_auth": Kind("the remote server asks for an account", 7 * _DAY),
    "remote_down": Kind("the remote server does not answer", _DAY),
}


@dataclass(frozen=True)
class Failure:
    """A classified failure: `kind` is in KINDS, `detail` one line of what was found."""

    kind: str
    detail: str

    @property
    def hint(self) -> str:
        """What was found and what to do, in one line."""
        advice = KINDS[self.kind].hint
        return f"{self.detail}: {advice}" if self.detail else advice


def next_retry(kind: str, attempts: int, now: float) -> float | None:
    """When a row that failed `attempts` times is due again (epoch seconds); None: never."""
    first = KINDS[kind].retry_s
    return None if first is None else now + min(first * 2 ** max(0, attempts - 1), 30 * _DAY)


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
        "needs_software",
        r"error while loading shared libraries|command not found|\bENOENT\b.*\bspawn\b"
        r"|spawn \S+ ENOENT|cannot find module|ModuleNotFoundError|ERR_MODULE_NOT_FOUND"
        r"|ImportError|no such file or directory: '(docker|git|java|uv|npx|chrom\w+|ffmpeg)'"
        r"|executable doesn't exist|execvp|unsupported engine|requires (node|python)"
        r"|git executable",
    ),
    (
        "needs_secret",
        r"((api|access|auth\w*|secret|bot|private|personal|bearer)[ _-]?(key|token|secret|id)s?"
        r"|\w+_(key|token|secret|password|pat))\b"
        r".{0,80}(required|missing|not set|not found|invalid|must|need|provide|undefined|empty"
        r"|not configured)"
        r"|(required|missing|provide|set|need|no|invalid|specify)\b.{0,60}\b\w*"
        r"(key|token|secret|credential|password|connection[ _]string)s?\b"
        r"|credentials?\b.{0,60}(required|missing|not (set|found|configured|provided)|invalid)"
        r"|unauthori[sz]ed|\b401\b|not authenticated|authentication (failed|required)",
    ),
    (
        "needs_argument",
        r"^\s*usage:|missing (required )?(positional )?arguments?|arguments? (is|are) required"
        r"|required (option|argument|flag)|(director|path|url|file)\w*\b.{0,40}"
        r"(is required|must be (specified|provided|set))"
        r"|(environment|env)\b.{0,20}\bvariables?\b.{0,60}(required|missing|not set|must)"
        r"|(required|missing|must set|please set)\b.{0,40}\b(environment|env)\b"
        r"|please (provide|specify)|not enough arguments|expected \d+ arguments?",
    ),
    (
        "needs_network",
        r"ENETUNREACH|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|getaddrinfo|name resolution"
        r"|network is unreachable|fetch failed|ConnectError|connection refused|ConnectionError"
        r"|max retries exceeded|dial tcp",
    ),
)


def from_last_words(stderr: str, exit_code: int | None, signal: str | None) -> Failure:
    """The kind of a server that ended by itself, from what it said and how it ended."""
    how = f"killed by {signal}" if signal else f"exit {exit_code}"
    if signal in ("SIGXCPU", "SIGXFSZ"):
        kind = "oversize" if signal == "SIGXCPU" else "disk_full"
        limit = "processor time" if signal == "SIGXCPU" else "file size"
        return Failure(kind, f"{how}, the limit on {limit}")
    said = spoken(stderr)
    if said:
        return Failure(said.kind, f"{how}, {said.detail}")
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "")
    words = f", said {last.strip()[:160]!r}" if last else ", said nothing"
    return Failure("crashed", how + words)


def spoken(text: str) -> Failure | None:
    """The kind that a server's own words name, or None when they name none."""
    for kind, words in _WORDS:
        found = re.search(words, text, re.IGNORECASE | re.MULTILINE)
        if found:
            return Failure(kind, f"said {_line_of(text, found.start())!r}")
    return None


def _line_of(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[start : end if end >= 0 else len(text)].strip()[:160]
