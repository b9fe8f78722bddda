"""The sandbox: bubblewrap around one stranger's process tree, with limits and a watchdog.

Belongs here: what a sandboxed process sees (own pid, net, ipc, uts and user namespaces, a read-only
root of /usr and a handful of /etc files, a private HOME and executable /tmp), its limits, starting
it and ending the whole tree. One code path serves both phases: fetch (network on) and run.
Does not belong here: what is started (`fetch.py`, `probe.py`), and measuring (`watchdog.py`).

As root the mounts are made by an outer bubblewrap; `setpriv` then drops to a uid of this sandbox
alone and an inner bubblewrap closes user namespaces: with `--uid` alone, root would ignore the
process limit and still read root's files. Anybody else needs a single bubblewrap.
"""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

HOME = "/home/user"
_MIB = 1024 * 1024
_UID_BASE, _UID_SPAN = 1_200_000_000, 1 << 24
# What programs need of /etc to start; nothing here is a secret.
_ETC = (
    *("/etc/ssl", "/etc/ca-certificates", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/fonts"),
    "/etc/pki",
)
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"


class SandboxUnavailable(RuntimeError):
    """This host cannot sandbox: what is missing, why, and how to mend it."""

    def __init__(self, what: str, why: str, how: str) -> None:
        super().__init__(f"no sandbox: {what} ({why}); {how}")
        self.what, self.why, self.how = what, why, how


@dataclass(frozen=True)
class SandboxPolicy:
    """Limits of one sandbox. memory_mb binds the tree's proportional set size and each process's
    private data; wall_s ends everything; stdout_mb and message_mb bound what is read back."""

    memory_mb: int = 1024
    processes: int = 256  # threads count too
    open_files: int = 1024
    file_mb: int = 256
    cpu_s: int = 120
    wall_s: float = 90.0
    stdout_mb: int = 64
    message_mb: int = 16
    network: Literal["none", "full"] = "none"
    tmp_mb: int = 512


@dataclass(frozen=True)
class Mount:
    """A host path shown inside at `inside`, read-only unless `writable`."""

    host: Path
    inside: str
    writable: bool = False

    @classmethod
    def same(cls, host: Path, *, writable: bool = False) -> "Mount":
        return cls(host, str(host), writable)


@dataclass(frozen=True)
class Launch:
    """A command and the world it sees. `env` is its whole environment besides HOME and friends;
    `dirs` are empty writable folders below HOME made for it; `uid` fixes the user (root host)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cwd: str = HOME
    dirs: tuple[str, ...] = ()
    uid: int | None = None


def start(launch: Launch, policy: SandboxPolicy) -> "Jailed":
    """Starts the command in a fresh sandbox, with pipes on its three standard streams.

    Raises SandboxUnavailable when this host cannot sandbox.
    """
    preflight()
    uid = launch.uid or _UID_BASE + random.SystemRandom().randrange(_UID_SPAN)
    argv, files = _command(launch, policy, uid)
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
    argv, files = _command(Launch(("true",)), SandboxPolicy(), _UID_BASE)
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


def _command(launch: Launch, policy: SandboxPolicy, uid: int) -> tuple[list[str], list[int]]:
    """The full command line, and the descriptors it reads (environment and small /etc files)."""
    root = os.geteuid() == 0
    shown = uid if root else os.getuid()
    identity = {
        "/etc/passwd": f"user:x:{shown}:{shown}:user:{HOME}:/bin/sh\n",
        "/etc/group": f"user:x:{shown}:\n",
        "/etc/hosts": _HOSTS,
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    files: list[int] = []
    args = _world(launch, policy)
    for path, text in identity.items():
        files.append(_memory_file(text.encode()))
        args += ["--perms", "0444", "--ro-bind-data", str(files[-1]), path]
    files.append(_memory_file(b"\0".join(_environment(launch))))
    env = ["--args", str(files[-1])]
    limited = ["prlimit", *_limits(policy), "--", *launch.argv]
    closed = ["--unshare-user", "--disable-userns", "--die-with-parent"]
    if not root:
        return ["bwrap", *args, *closed, "--remount-ro", "/", *env, "--", *limited], files
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all"]
    inner = ["bwrap", *closed, "--dev-bind", "/", "/", *env, "--", *limited]
    outer = ["bwrap", *args, "--die-with-parent", "--remount-ro", "/", "--"]
    return [*outer, *drop, *inner], files


def _world(launch: Launch, policy: SandboxPolicy) -> list[str]:
    """Bubblewrap's arguments for the namespaces and the file tree."""
    args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    args += ["--new-session", "--hostname", "sandbox"]
    if policy.network == "none":
        args.append("--unshare-net")
    args += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}"):
            args += ["--symlink", f"usr/{name}", f"/{name}"]
        elif os.path.isdir(f"/{name}"):
            args += ["--ro-bind", f"/{name}", f"/{name}"]
    etc = [*_ETC, *(["/etc/resolv.conf"] if policy.network == "full" else [])]
    args += ["--perms", "0755", "--dir", "/etc"]
    for path in etc:
        if os.path.exists(path):
            args += ["--ro-bind", os.path.realpath(path), path]
    args += ["--proc", "/proc", "--dev", "/dev"]
    size = str(policy.tmp_mb * _MIB)
    args += ["--perms", "1777", "--size", str(64 * _MIB), "--tmpfs", "/dev/shm"]
    args += ["--remount-ro", "/dev"]
    args += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
    args += ["--perms", "0777", "--size", size, "--tmpfs", HOME]
    for path in launch.dirs:
        args += ["--perms", "0777", "--dir", path]
    for parent in _parents(launch.mounts):
        args += ["--perms", "0755", "--dir", parent]
    for mount in launch.mounts:
        args += ["--bind" if mount.writable else "--ro-bind", str(mount.host), mount.inside]
    return args


def _parents(mounts: Sequence[Mount]) -> list[str]:
    """Folders above the mounts, outermost first: bubblewrap would make them for root's eyes only,
    and a Python under /root would be out of reach."""
    found = {str(parent) for mount in mounts for parent in Path(mount.inside).parents}
    shown = ("/", "/usr", "/home", HOME, "/tmp", "/etc")
    return sorted(path for path in found if path not in shown and not path.startswith("/usr/"))


def _environment(launch: Launch) -> Sequence[bytes]:
    """Bubblewrap arguments that replace the environment; read from memory so that no value shows
    in a process list."""
    base = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "USER": "user",
        "TMPDIR": "/tmp",
        # A list that a server makes from a Python set must not differ from launch to launch:
        # mcp-atlassian's default fields did, and four contracts changed every night.
        "PYTHONHASHSEED": "0",
    }
    env = {**base, **launch.env, "HOME": HOME}
    words = ["--clearenv", "--chdir", launch.cwd]
    for name, value in env.items():
        words += ["--setenv", name, value]
    return [word.replace("\0", "").encode("utf-8", "replace") for word in words]


def _limits(policy: SandboxPolicy) -> list[str]:
    return [
        f"--data={policy.memory_mb * _MIB}",  # not --as: V8 and Chromium reserve far more than use
        f"--nproc={policy.processes}",
        f"--nofile={policy.open_files}",
        f"--fsize={policy.file_mb * _MIB}",
        f"--cpu={policy.cpu_s}",
        "--core=0",
    ]


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("toolmill")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
