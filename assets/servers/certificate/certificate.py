"""The certificate of a sandbox: the escape suite, run in the backend in use."""

import json
import os
import select
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from assets.servers.certificate.escapes import ATTEMPTS, CONTROLS, suite_digest, write_program
from assets.servers.certificate.memory import MEMORY_ATTEMPTS, try_holding_memory
from assets.servers.recipes.fetch_phase import describe_fetch_network
from assets.servers.recipes.package_files import SERVER
from assets.servers.sandbox.process import choose_backend, start
from assets.servers.sandbox.spec import Backend, Launch, Mount, SandboxPolicy, build_environment
from assets.servers.sandbox.toolchain import Toolchain
from warehouse.storage.digest import digest

_LIMIT_S = 30.0
_KEPT = 1 << 20
_HOST_FILES = ("/etc/passwd", "/etc/hostname", "/etc/machine-id", "/etc/fstab")
# Variables that a runtime, a shell or an engine adds by itself.
_ADDED = ("CANARIES", "PWD", "SHLVL", "_", "LC_CTYPE", "HOSTNAME", "container", "TERM", "OLDPWD")


@dataclass(frozen=True)
class Certificate:
    """digest: sha256 of the facts, in which there is no time. passed: every control worked and
    every attempt was refused. escaped: what was not refused, or `nothing_ran`. n: attempts made.
    facts: suite, backend, version, network grant, filters, and each attempt's outcome."""

    digest: str
    backend: str
    passed: bool
    escaped: tuple[str, ...]
    n: int
    facts: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Canaries:
    """What the host prepared for the suite to find."""

    folder: Path
    facts: dict[str, Any]
    listeners: tuple[socket.socket, ...]

    def reached(self) -> bool:
        """Whether anybody connected to a listener of the host."""
        return bool(select.select(self.listeners, [], [], 0)[0])


_cached: dict[str, Certificate] = {}
_lock = threading.Lock()


def certify(policy: SandboxPolicy, toolchain: Toolchain) -> Certificate:
    """Runs the escape suite in the backend that `policy` comes to; once per process and key.

    Raises SandboxUnavailable where there is no backend."""
    chosen = choose_backend(policy)
    about = {
        "suite": digest_suite(),
        "backend": chosen.name,
        "version": chosen.version(),
        "network": policy.network,
        "fetch_network": describe_fetch_network(chosen.name),
        "fetch_hosts": sorted(policy.fetch_hosts),
        **chosen.facts(policy),
    }
    with _lock:
        shown = [str(toolchain.python), *map(str, toolchain.binds)]
        key = digest({**about, "shown": shown, "engine": policy.engine})
        if key not in _cached:
            outcomes = _run_cases(chosen, policy, toolchain)
            _cached[key] = judge_outcomes(about, outcomes, policy.network)
        return _cached[key]


def digest_suite() -> str:
    """The suite's digest: what a certificate of another suite differs in."""
    return digest([suite_digest(), MEMORY_ATTEMPTS])


def judge_outcomes(
    about: Mapping[str, Any], outcomes: Mapping[str, str], network: str
) -> Certificate:
    """The certificate that the outcomes amount to."""
    allowed = {a.name for a in ATTEMPTS if a.granted and network == "full"}
    names = [*(attempt.name for attempt in ATTEMPTS), *MEMORY_ATTEMPTS]
    shown = {name: outcomes.get(name, "not run") for name in names}
    shown |= dict.fromkeys(allowed, "granted")
    surface = {attempt.name for attempt in ATTEMPTS if attempt.surface}
    escaped = [n for n, how in shown.items() if how == "worked" and n not in surface]
    if outcomes.get("listener") == "reached" and network == "none":
        escaped.append("listener_of_the_host")
    failed = [name for name in CONTROLS if outcomes.get(name) != "worked"]
    if failed or "not run" in shown.values():
        escaped.append("nothing_ran")
    facts = {**about, "controls_failed": failed, "attempts": shown}
    made = sum(how in ("worked", "refused") for how in shown.values())
    name = str(about["backend"])
    return Certificate(digest(facts), name, not escaped, tuple(escaped), made, facts)


def _run_cases(chosen: Backend, policy: SandboxPolicy, toolchain: Toolchain) -> dict[str, str]:
    """What each case came to; nothing is tried where nothing contains it."""
    if chosen.name == "none":
        return {}
    with place_canaries(toolchain.binds) as prepared:
        launch = make_suite_launch(prepared, toolchain)
        outcomes = {**run_suite(launch, policy), **try_holding_memory(launch, policy)}
        return {**outcomes, "listener": "reached" if prepared.reached() else "untouched"}


def make_suite_launch(prepared: Canaries, toolchain: Toolchain) -> Launch:
    """The launch of the suite's program; its own folder is the one mount of a server."""
    mounts = [Mount.same(path) for path in toolchain.binds]
    own = Mount(prepared.folder / "server", SERVER)
    argv = (str(toolchain.python), "-I", "-c", write_program())
    launch = Launch(argv, {"CANARIES": ""}, (*mounts, own))
    facts = {**prepared.facts, "names": [*build_environment(launch), *_ADDED]}
    return replace(launch, env={"CANARIES": json.dumps(facts)})


def run_suite(launch: Launch, policy: SandboxPolicy) -> dict[str, str]:
    """{case: outcome} as the program printed it; empty where it did not end well."""
    with start(launch, policy) as jailed:
        try:
            out, _ = jailed.process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            return {}
    try:
        found = json.loads(out[:_KEPT])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def place_canaries(binds: Iterable[Path] = ()) -> Iterator[Canaries]:
    """A file, socket files, a loopback listener, an abstract socket, a process with a variable and
    files at home and beside the toolchain's `binds`, all of this host, while the suite runs."""
    token = f"canary-{uuid.uuid4().hex}"
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="toolmill-canary-")))
        (folder / "server").mkdir()
        (folder / "server" / "own").write_text("own")
        (folder / "secret").write_text(token)
        for path in (folder, folder / "server"):
            path.chmod(0o755)  # not the permissions are tried, but the walls
        (folder / "secret").chmod(0o666)
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = [held.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for listener, name in zip(unix, (str(folder / "socket"), f"\0{folder}"), strict=True):
            listener.bind(name)
            listener.listen()
        (folder / "socket").chmod(0o777)
        process = subprocess.Popen(
            ["sh", "-c", "read _", token],
            stdin=subprocess.PIPE,
            env={"PATH": os.defpath, "VALUE": f"=CANARY {token}"},
        )
        held.callback(process.communicate)
        held.callback(process.kill)  # the last goes first
        facts = {
            "token": [token[:20], token[20:]],
            "folder": str(folder),
            "file": str(folder / "secret"),
            "socket": str(folder / "socket"),
            "port": tcp.getsockname()[1],
            "abstract": str(folder),
            "beside": [*_place_neighbours(binds, held)],
            "digests": {path: _digest_of(path) for path in _HOST_FILES},
        }
        yield Canaries(folder, facts, (tcp, *unix))


def _place_neighbours(binds: Iterable[Path], held: ExitStack) -> Iterator[str]:
    """A file in each folder that a runtime lies in and in the user's own, where we may write."""
    home = Path.home()
    for folder in {home, home / ".local", *(path.parent for path in binds)}:
        path = folder / f".toolmill-canary-{uuid.uuid4().hex}"
        with suppress(OSError):
            path.open("x").close()
            held.callback(path.unlink, missing_ok=True)
            yield str(path)


def _digest_of(path: str) -> str | None:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
