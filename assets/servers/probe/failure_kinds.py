"""The failure taxonomy: every way a server can fail to list its tools, with a hint and a retry."""

from dataclasses import dataclass
from typing import Literal, get_args

# Who has to fix a failed call: who made its arguments, the tool, the server that holds it, who
# gives the credentials, what we grant (the sandbox's limits, its network, the settings), a service
# behind the tool, Toolmill itself.
Blame = Literal["caller", "tool", "server", "credentials", "policy", "upstream", "us"]
BLAMES: tuple[Blame, ...] = get_args(Blame)
_DAY = 86_400.0
_EARLY = _DAY / 4


@dataclass(frozen=True)
class Kind:
    """hint: what to do. retry_s: seconds until the first retry; it doubles with each attempt up to
    thirty days. None: a new recipe is needed, trying again changes nothing. blame: who has to fix
    it, where a call fails by it."""

    hint: str
    retry_s: float | None = None
    blame: Blame = "server"


KINDS: dict[str, Kind] = {
    "not_found": Kind(
        "the package or version does not exist in the registry: check the listing's name",
        3 * _DAY,
        "us",
    ),
    # Due at once: mostly it is this host's network, and its owner fixes it and runs again.
    "fetch_failed": Kind("the download failed: check network, proxy and certificates", 0.0, "us"),
    "integrity": Kind(
        "what was downloaded is not what was pinned: treat the package as compromised", 3 * _DAY
    ),
    "build_failed": Kind(
        "no ready-made package for this platform, and builds run third-party scripts",
        7 * _DAY,
        "us",
    ),
    # Due at once: nothing was learnt of the server.
    "worker_lost": Kind("the cluster gave no result: look at its workers and run again", 0.0, "us"),
    "no_recipe": Kind("neither listing nor package says how to start a server", None, "us"),
    "needs_secret": Kind(
        "the server checks its credentials before it lists tools: give it real ones",
        7 * _DAY,
        "credentials",
    ),
    "needs_confirmation": Kind(
        "what a listing chose runs beside your secret or grant, and a command of your own runs at"
        " all, only once you confirmed it",
        None,
        "policy",
    ),
    # Due at once: its user makes the folder, or grants another.
    "bad_grant": Kind("what you granted it cannot be given", 0.0, "policy"),
    "needs_argument": Kind(
        "the server needs an argument that the listing does not name", 7 * _DAY, "us"
    ),
    "needs_network": Kind(
        "the server calls out before it lists tools: grant it the network to see them",
        7 * _DAY,
        "policy",
    ),
    "needs_software": Kind(
        "the server needs a program or library that is not here", 7 * _DAY, "policy"
    ),
    "incompatible": Kind(
        "a dependency or runtime has moved on since this release: take a newer release of it",
        7 * _DAY,
    ),
    "read_only": Kind(
        "the server writes outside its own home and the temporary folder", 7 * _DAY, "policy"
    ),
    "timeout_start": Kind("no answer to `initialize` in time: it hangs or is very slow", 2 * _DAY),
    "timeout_list": Kind("`initialize` was answered, `tools/list` was not", 2 * _DAY),
    "crashed": Kind("the server ended before it listed its tools: see stderr_tail", 2 * _DAY),
    "protocol_error": Kind("the server does not speak MCP on its standard output", 7 * _DAY),
    "oversize": Kind("more output, pages or tools than the limits allow", 7 * _DAY),
    "out_of_memory": Kind("more memory than the sandbox grants", 7 * _DAY, "policy"),
    "too_many_processes": Kind(
        "more processes or threads than the sandbox grants", 7 * _DAY, "policy"
    ),
    "disk_full": Kind("more private disk than the sandbox grants", 7 * _DAY, "policy"),
    "no_tools": Kind("the server runs and offers no tools", 7 * _DAY),
    "policy_denied": Kind("the settings do not allow this kind of server", None, "policy"),
    "remote_auth": Kind("the remote server asks for an account", 7 * _DAY, "credentials"),
    "remote_down": Kind("the remote server does not answer", _DAY),
    "internal": Kind("a fault of this program: report it with the digest of its trace", _DAY, "us"),
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


class Ended(Exception):
    """A conversation is over, with this failure."""

    def __init__(self, failure: Failure) -> None:
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
