"""The certificate: a preflight that tries one harmless way past each limit of the sandbox."""

import json
import os
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from assets.servers.sandbox.process import choose_backend, describe_fetch_network, start
from assets.servers.sandbox.spec import (
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    build_environment,
)
from assets.servers.sandbox.toolchain import HostToolchain
from warehouse.storage.digest import digest

_WALLS = "upgrade bubblewrap (0.8 or later)"
_RUNTIME = "install the runtime in a folder of its own, apart from home folders"
_RIGHTS = "upgrade bubblewrap and util-linux, or run as an ordinary user"
_NETWORK = 'set `sandbox.network = "none"`'
# Limit: (expression that must raise inside, what to do where it does not).
_ATTEMPTS = {
    "reads_a_file_of_the_host": ("open(C['file']).read()", _WALLS),
    "finds_a_file_beside_the_toolchain": ("next(filter(os.path.lexists, C['beside']))", _RUNTIME),
    "writes_usr": ("1 / os.access('/usr/lib', os.W_OK)", _WALLS),
    "shares_the_mounts_of_the_host": ("shared('mnt')", _WALLS),
    "shares_the_processes_of_the_host": ("shared('pid')", _WALLS),
    "shares_the_messages_of_the_host": ("shared('ipc')", _WALLS),
    "shares_the_network_of_the_host": ("shared('net')", _NETWORK),
    "has_a_route": ("socket.socket(2, socket.SOCK_DGRAM).connect(('192.0.2.1', 53))", _NETWORK),
    "inherits_a_variable": ("1 / len(set(os.environ) - set(C['names']))", _RIGHTS),
    "inherits_a_descriptor": ("1 / len(DESCRIPTORS - {'0', '1', '2'})", _RIGHTS),
    "becomes_root": ("os.setuid(0)", _RIGHTS),
    "holds_a_capability": ("1 / int(status('CapBnd'), 16)", _RIGHTS),
    "gains_by_a_setuid_program": ("1 / (1 - int(status('NoNewPrivs')))", _RIGHTS),
    "makes_a_user_namespace": ("1 / (1 + LIBC.unshare(0x10000000))", _RIGHTS),
    "raises_a_limit": ("resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))", _RIGHTS),
    "holds_twice_its_memory": ("bytearray(2 * C['memory'])", _WALLS),
    "holds_its_memory_in_files": ("1 / max(0, measure_disks() - C['memory'])", _WALLS),
}
_GRANTED = ("shares_the_network_of_the_host", "has_a_route")  # by `network = "full"`
_CONTROLS = {
    "writes_home": "open(os.environ['HOME'] + '/x', 'w').close()",
    "writes_tmp": "open(os.environ['TMPDIR'] + '/x', 'w').close()",
    "starts_a_program": "subprocess.run(['true'], check=True)",
}
_CASES = {name: case for name, (case, _) in _ATTEMPTS.items()} | _CONTROLS
# Variables that a runtime, a shell or an engine adds by itself.
_ADDED = ("PREFLIGHT", "PWD", "SHLVL", "_", "LC_CTYPE", "HOSTNAME", "container", "TERM", "OLDPWD")
_PROGRAM = """
import os
DESCRIPTORS = {d for d in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + d)}
import ctypes, json, resource, socket, subprocess
C, LIBC = json.loads(os.environ['PREFLIGHT']), ctypes.CDLL(None)
def shared(kind):
    1 / (os.readlink('/proc/self/ns/' + kind) == C['namespaces'][kind])
def status(name):
    return open('/proc/self/status').read().split(name + ':')[1].split()[0]
def measure_disks():
    disks = map(os.statvfs, {'/tmp', os.environ['HOME'], '/dev/shm'})
    return sum(disk.f_blocks * disk.f_frsize for disk in disks)
def attempt(source):
    pid = os.fork()  # what works must not help the next attempt
    if not pid:
        try:
            eval(source)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return 'refused' if os.waitpid(pid, 0)[1] else 'worked'
print(json.dumps({name: attempt(source) for name, source in C['cases'].items()}))
"""
_cached: dict[str, dict[str, Any]] = {}
_lock = threading.Lock()


def certify(policy: SandboxPolicy, toolchain: HostToolchain) -> dict[str, Any]:
    """The certificate of the backend that `policy` comes to, made once per process and setting.

    passed: every control worked and every attempt was refused. escaped: what was not refused, or
    `nothing_ran`; fixes: what to do. n: attempts made. Raises SandboxUnavailable."""
    backend = choose_backend(policy)
    about = {
        "suite": digest_preflight(),
        "backend": backend.name,
        "version": backend.version(),
        "network": policy.network,
        "fetch_network": describe_fetch_network(backend.name),
        "fetch_hosts": sorted(policy.fetch_hosts),
        **backend.facts(policy),
    }
    with _lock:
        files = list(map(str, (toolchain.python, *toolchain.binds)))
        key = digest([about, files, policy.engine])
        if key not in _cached:
            # Nothing is tried where nothing contains it.
            outcomes = {} if backend.name == "none" else run_preflight(policy, toolchain)
            _cached[key] = judge_outcomes(about, outcomes)
        return _cached[key]


def digest_preflight() -> str:
    """Names the preflight, so that certificates of another one can be told."""
    return digest([_PROGRAM, _CASES])


def judge_outcomes(about: Mapping[str, Any], outcomes: Mapping[str, str]) -> dict[str, Any]:
    """The certificate that the outcomes of attempts and controls amount to."""
    attempts = {name: outcomes.get(name, "not run") for name in _ATTEMPTS}
    if about.get("network") == "full":
        attempts |= dict.fromkeys(_GRANTED, "granted")
    escaped = [name for name, outcome in attempts.items() if outcome == "worked"]
    failed = [name for name in _CONTROLS if outcomes.get(name) != "worked"]
    if failed or "not run" in attempts.values():
        escaped.append("nothing_ran")
    facts = {**about, "controls_failed": failed, "attempts": attempts}
    n = sum(outcome in ("worked", "refused") for outcome in attempts.values())
    fixes = sorted({_ATTEMPTS.get(name, ("", "see docs/sandbox.md"))[1] for name in escaped})
    summary = {"passed": not escaped, "n": n, "escaped": escaped, "fixes": fixes}
    return {**facts, **summary, "digest": digest(facts)}


def run_preflight(policy: SandboxPolicy, toolchain: HostToolchain) -> dict[str, str]:
    """{case: `worked` or `refused`}, empty where the program did not end well."""
    kinds, home, neighbours = ("mnt", "pid", "ipc", "net"), Path.home(), []
    with tempfile.NamedTemporaryFile(prefix="toolmill-canary-") as file, ExitStack() as placed:
        os.chmod(file.name, 0o666)  # not the permissions are tried, but the walls
        for folder in {home, home / ".local", *(path.parent for path in toolchain.binds)}:
            path = folder / f".toolmill-canary-{uuid.uuid4().hex}"
            with suppress(OSError):  # where we may not write
                path.open("x").close()
                placed.callback(path.unlink, missing_ok=True)
                neighbours.append(str(path))
        facts = {
            "file": file.name,
            "beside": neighbours,
            "names": [*build_environment(SandboxLaunch(())), *_ADDED],
            "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in kinds},
            "memory": policy.memory_mb << 20,
            "cases": _CASES,
        }
        argv, mounts = (
            (str(toolchain.python), "-I", "-c", _PROGRAM),
            map(SandboxMount.same, toolchain.binds),
        )
        launch = SandboxLaunch(argv, {"PREFLIGHT": json.dumps(facts)}, tuple(mounts))
        with start(launch, policy) as jailed, suppress(subprocess.TimeoutExpired, ValueError):
            outcomes = json.loads(jailed.process.communicate(timeout=30)[0][: 1 << 20])
            return outcomes if isinstance(outcomes, dict) else {}
    return {}
