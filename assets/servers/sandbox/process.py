"""The sandbox: one untrusted process tree, started within limits and ended as a whole.

A sandboxed process has its own pid, net, ipc, uts and user namespaces, a read-only root, a private
HOME and an executable /tmp. One code path serves both phases: fetch (network on) and run.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from assets.servers.sandbox import spec
from assets.servers.sandbox.bubblewrap import BubblewrapBackend
from assets.servers.sandbox.spec import (
    HOME,
    BackendCommand,
    SandboxBackend,
    SandboxLaunch,
    SandboxPolicy,
    SandboxUnavailable,
    check_words,
)

_MARK = "TOOLMILL_SANDBOX"


class UnsandboxedBackend:
    """No isolation at all. Taken only when the settings name it."""

    name = "none"

    def version(self) -> str:
        return "1"

    def preflight(self) -> None:
        if shutil.which("prlimit", path=spec.SEARCH) is None:
            how = "install it (Debian: apt-get install util-linux) and run again"
            raise SandboxUnavailable("prlimit", "not installed", how)

    def facts(self, policy: SandboxPolicy) -> dict[str, Any]:
        return {"system_calls": "unfiltered", "host_loopback": "reachable"}

    def command(self, launch: SandboxLaunch, policy: SandboxPolicy) -> BackendCommand:
        """Paths that the launch names as seen inside are replaced by the host's own."""
        temporary = tempfile.mkdtemp(prefix="toolmill-bare-")
        home, mark = temporary, uuid.uuid4().hex
        places = {mount.inside: str(mount.host) for mount in launch.mounts} | {HOME: home}
        for folder in (f"{temporary}/tmp", *(_replace_paths(path, places) for path in launch.dirs)):
            os.makedirs(folder, exist_ok=True)
        env = {
            key: _replace_paths(value, places)
            for key, value in spec.build_environment(launch).items()
        }
        env |= {"HOME": home, "TMPDIR": f"{temporary}/tmp", _MARK: mark}
        # Not the number of processes: the kernel counts all that this user runs on the host.
        argv = [*spec.build_prlimit(policy, without=("nproc",))]
        argv += [_replace_paths(word, places) for word in launch.argv]

        def end() -> None:
            _end_processes(mark)
            shutil.rmtree(temporary, ignore_errors=True)

        cwd = _replace_paths(launch.cwd, places)
        return BackendCommand(argv, env=env, cwd=cwd, end=end)


def _replace_paths(text: str, places: dict[str, str]) -> str:
    """`text` with every path inside replaced, the longest first."""
    inside = sorted((path for path in places if places[path] != path), key=len, reverse=True)
    pattern = "|".join(re.escape(path) for path in inside)
    return re.sub(rf"(?:{pattern})(?![\w.\-])", lambda match: places[match[0]], text)


def _end_processes(mark: str) -> None:
    """Kills the processes that still carry the mark in their environment, those that left the
    process group too. One that scrubbed its environment gets away: nothing contains it."""
    word = f"{_MARK}={mark}".encode()
    for _ in range(5):  # a process may fork while we look
        ended = False
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if word in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
                    ended = True
        if not ended:
            return


def choose_backend(policy: SandboxPolicy) -> SandboxBackend:
    """The backend that the policy names. Raises SandboxUnavailable where it does not work here."""
    backend = UnsandboxedBackend() if policy.backend == "none" else BubblewrapBackend()
    backend.preflight()
    return backend


def preflight(policy: SandboxPolicy | None = None) -> None:
    """Raises SandboxUnavailable, naming what, why and how, where nothing can be contained."""
    choose_backend(policy or SandboxPolicy())


def describe_fetch_network(backend: str) -> str:
    """What the fetch phase reaches in a backend; part of the certificate."""
    return "host" if backend == "none" else "registries"


def start(launch: SandboxLaunch | BackendCommand, policy: SandboxPolicy) -> "SandboxProcess":
    """Starts a launch in a fresh sandbox, or what a backend made of one (a container engine
    makes it of an image), with pipes on its three standard streams.

    Raises SandboxUnavailable when this host cannot sandbox, and LaunchRefused.
    """
    if isinstance(launch, BackendCommand):
        command = launch
    else:
        check_words(launch.argv, launch.env)
        command = choose_backend(policy).command(launch, policy)
    try:
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(command.env),
            cwd=command.cwd,
            pass_fds=command.files,
            start_new_session=True,
        )
    except BaseException:
        if command.end:
            command.end()
        raise
    finally:
        for descriptor in command.files:
            os.close(descriptor)
    return SandboxProcess(process, command)


class SandboxProcess:
    """A running sandbox. Use as a context manager: leaving it ends the whole tree."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", command: BackendCommand | None = None
    ) -> None:
        self.process = process
        self._root = command.root if command else None
        self._end = command.end if command else None

    @property
    def pid(self) -> int:
        """The root of the process tree, to be watched; the client's own until that is known."""
        return (self._root() if self._root else None) or self.process.pid

    def kill(self) -> None:
        """Ends every process of the sandbox: its pid namespace dies with bubblewrap; a backend
        whose processes are not ours ends them itself."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        end, self._end = self._end, None
        if end:
            end()

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself within a moment: its output ends just before it does."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def exit_status(self) -> tuple[int | None, str | None]:
        """(exit code, signal name): one of them once the command has ended, else (None, None)."""
        return describe_exit(self.process.poll())

    def __enter__(self) -> "SandboxProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def describe_exit(code: int | None) -> tuple[int | None, str | None]:
    """(exit code, None) or (None, signal name); backends report a signal as 128 + number."""
    if code is None:
        return None, None
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        return (None, signal.Signals(number).name) if number else (code, None)
    except ValueError:
        return code, None
