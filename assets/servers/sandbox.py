"""The sandbox: bubblewrap around one stranger's process tree, with limits and a watchdog.

A sandboxed process has its own pid, net, ipc, uts and user namespaces, a read-only root of /usr and
a handful of /etc files, a private HOME and an executable /tmp. One code path serves both phases:
fetch (network on) and run.
Belongs here: starting it, ending the whole tree, and whether this host can do it at all.
Does not belong here: the arguments (`bubblewrap.py`), what is started (`fetch.py`, `probe.py`), and
measuring (`watchdog.py`).
"""

import os
import random
import shutil
import signal
import subprocess
from functools import lru_cache

from assets.servers.bubblewrap import command_line
from assets.servers.launch import Launch, SandboxPolicy

_UID_BASE, _UID_SPAN = 1_200_000_000, 1 << 24


class SandboxUnavailable(RuntimeError):
    """This host cannot sandbox: what is missing, why, and how to mend it."""

    def __init__(self, what: str, why: str, how: str) -> None:
        super().__init__(f"no sandbox: {what} ({why}); {how}")
        self.what, self.why, self.how = what, why, how


def start(launch: Launch, policy: SandboxPolicy) -> "Jailed":
    """Starts the command in a fresh sandbox, with pipes on its three standard streams.

    Raises SandboxUnavailable when this host cannot sandbox.
    """
    preflight()
    uid = launch.uid or _UID_BASE + random.SystemRandom().randrange(_UID_SPAN)
    argv, files = command_line(launch, policy, uid)
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.defpath + ":/usr/sbin"},
            cwd="/",
            pass_fds=files,
            start_new_session=True,
        )
    finally:
        for descriptor in files:
            os.close(descriptor)
    return Jailed(process)


class Jailed:
    """A running sandbox. Use as a context manager: leaving it ends the whole tree."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Ends every process of the sandbox: its pid namespace dies with bubblewrap."""
        if self.process.poll() is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def exit_status(self) -> tuple[int | None, str | None]:
        """(exit code, signal name): one of them once the command has ended, else (None, None)."""
        return describe_exit(self.process.poll())

    def __enter__(self) -> "Jailed":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass


def describe_exit(code: int | None) -> tuple[int | None, str | None]:
    """(exit code, None) or (None, signal name); bubblewrap reports a signal as 128 + number."""
    if code is None:
        return None, None
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        return (None, signal.Signals(number).name) if number else (code, None)
    except ValueError:
        return code, None


@lru_cache(maxsize=1)
def preflight() -> None:
    """Starts an empty sandbox once; raises SandboxUnavailable naming what, why and how."""
    for program in ("bwrap", "setpriv", "prlimit"):
        if shutil.which(program, path=os.defpath + ":/usr/sbin:/usr/local/bin") is None:
            package = "bubblewrap" if program == "bwrap" else "util-linux"
            raise SandboxUnavailable(
                program,
                "not installed",
                f"install it (Debian: apt-get install {package}) and run again",
            )
    argv, files = command_line(Launch(("true",)), SandboxPolicy(), _UID_BASE)
    try:
        tried = subprocess.run(argv, capture_output=True, text=True, timeout=20, pass_fds=files)
    except subprocess.TimeoutExpired:
        raise SandboxUnavailable("bwrap", "an empty sandbox hangs", "see `bwrap --help`") from None
    finally:
        for descriptor in files:
            os.close(descriptor)
    if tried.returncode:
        reason = tried.stderr.strip().splitlines()[-1] if tried.stderr.strip() else "no message"
        raise SandboxUnavailable("bubblewrap does not start", reason, _remedy(reason))


def _remedy(reason: str) -> str:
    if "disable-userns" in reason:
        return "bubblewrap 0.8 or later is needed: upgrade it"
    if os.geteuid() == 0:
        return (
            "root without the right to mount, as in an unprivileged container: run as an ordinary"
            " user where user namespaces are allowed, or grant the container CAP_SYS_ADMIN"
        )
    return (
        "this kernel refuses user namespaces to ordinary users: on Ubuntu 24.04 install an AppArmor"
        " profile for bwrap or set kernel.apparmor_restrict_unprivileged_userns=0; elsewhere set"
        " kernel.unprivileged_userns_clone=1"
    )
