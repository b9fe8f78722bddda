"""The backend `none`: a server as an ordinary process, for those who turn isolation off."""

import os
import re
import shutil
import signal
import tempfile
import uuid
from typing import Any

from assets.servers.sandbox import environment
from assets.servers.sandbox.backend import Command, SandboxUnavailable
from assets.servers.sandbox.spec import HOME, Launch, SandboxPolicy

_MARK = "TOOLMILL_SANDBOX"


class Bare:
    """No isolation at all. Taken only when the settings name it."""

    name = "none"

    def version(self) -> str:
        return "1"

    def preflight(self) -> None:
        if shutil.which("prlimit", path=environment.SEARCH) is None:
            how = "install it (Debian: apt-get install util-linux) and run again"
            raise SandboxUnavailable("prlimit", "not installed", how)

    def facts(self, policy: SandboxPolicy) -> dict[str, Any]:
        return {"system_calls": "unfiltered", "host_loopback": "reachable"}

    def command(self, launch: Launch, policy: SandboxPolicy) -> Command:
        """Paths that the launch names as seen inside are replaced by the host's own."""
        made = tempfile.mkdtemp(prefix="toolmill-bare-")
        home, mark = str(launch.volume or made), uuid.uuid4().hex
        places = {mount.inside: str(mount.host) for mount in launch.mounts} | {HOME: home}
        for folder in (f"{made}/tmp", *(_replace_paths(path, places) for path in launch.dirs)):
            os.makedirs(folder, exist_ok=True)
        env = {
            key: _replace_paths(value, places)
            for key, value in environment.build_environment(launch).items()
        }
        env |= {"HOME": home, "TMPDIR": f"{made}/tmp", _MARK: mark}
        # Not the number of processes: the kernel counts all that this user runs on the host.
        argv = [*environment.build_prlimit(policy, without=("nproc",))]
        argv += [_replace_paths(word, places) for word in launch.argv]

        def end() -> None:
            _end_processes(mark)
            shutil.rmtree(made, ignore_errors=True)

        cwd = _replace_paths(launch.cwd, places)
        return Command(argv, env=env, cwd=cwd, end=end, volume=launch.volume)


def _replace_paths(text: str, places: dict[str, str]) -> str:
    """`text` with every path inside replaced, the longest first."""
    inside = sorted((path for path in places if places[path] != path), key=len, reverse=True)
    pattern = "|".join(re.escape(path) for path in inside)
    return re.sub(rf"(?:{pattern})(?![\w.\-])", lambda found: places[found[0]], text)


def _end_processes(mark: str) -> None:
    """Kills the processes that still carry the mark in their environment, those that left the
    process group too. One that scrubbed its environment gets away: nothing contains it."""
    word = f"{_MARK}={mark}".encode()
    for _ in range(5):  # a process may fork while we look
        found = [pid for pid in os.listdir("/proc") if pid.isdigit() and word in _read_environ(pid)]
        for pid in found:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if not found:
            return


def _read_environ(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
