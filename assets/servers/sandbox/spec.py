"""The sandbox's vocabulary: launch, mounts, limits, environment and the backend protocol."""

import os
import pwd
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

HOME = "/home/user"
_SYSTEM = ("/proc", "/sys", "/dev", "/run")
_SHARED = (Path("/tmp"), Path("/var/tmp"))


@dataclass(frozen=True)
class SandboxSettings:
    """Limits of one sandbox, as a user can set them. memory_mb binds the tree's proportional set
    size and each process's private data; wall_s ends everything. Plain Python: the sandbox runs
    without any package.

    backend: `none` contains nothing, and every row is marked uncertified. engine: runs servers that
    are images (`podman` takes the same words).
    fetch_hosts: `host` or `host:port` that the fetch phase may reach besides registries in use."""

    backend: Literal["bubblewrap", "none"] = "bubblewrap"
    engine: str = "docker"
    memory_mb: int = 1024
    processes: int = 128  # threads count too
    file_mb: int = 256
    tmp_mb: int = 512
    wall_s: float = 60.0
    network: Literal["none", "full"] = "none"
    fetch_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class SandboxPolicy(SandboxSettings):
    """Limits of one sandbox. stdout_mb and message_mb bound what is read back. allow_loopback:
    bundles may be downloaded from this machine (the demo's are)."""

    open_files: int = 1024
    cpu_s: int = 120
    stdout_mb: int = 64
    message_mb: int = 16
    allow_loopback: bool = False


class MountRefused(ValueError):
    """A folder of the host that is never shown to a server: which, and what to do."""


@dataclass(frozen=True)
class SandboxMount:
    """A host path shown inside at `inside`, read-only unless `writable`. nofollow: a folder that is
    opened once, at the launch, without following a link, and shown by that descriptor: what takes
    its place meanwhile is not. Raises MountRefused for a home folder, its `.local`, and what lies
    above them: whatever asks for it, no launch has it."""

    host: Path
    inside: str
    writable: bool = False
    nofollow: bool = False

    def __post_init__(self) -> None:
        if is_private_folder(self.host):
            raise MountRefused(
                f"{self.host} is a home folder, a `.local` or lies above one, and is never shown to"
                " a server: name the folder that holds the server or the runtime alone"
            )

    @classmethod
    def same(cls, host: Path, *, writable: bool = False) -> "SandboxMount":
        return cls(host, str(host), writable)


@dataclass(frozen=True)
class SandboxLaunch:
    """A command and what it sees. `env` is its whole environment besides HOME and friends;
    `dirs` are empty writable folders below HOME made for it; `uid` fixes the user (root host)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[SandboxMount, ...] = ()
    cwd: str = HOME
    dirs: tuple[str, ...] = ()
    uid: int | None = None


_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_granted_folder(path: Path) -> int:
    """A descriptor of the folder at a path with no link on it. Raises UnusableGrant."""
    here = os.open("/", _FOLDER)
    try:
        for name in path.parts[1:]:
            below = os.open(name, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
    except OSError as error:
        os.close(here)
        problem = f"{error.strerror} at {error.filename!r}: no folder, or behind a link"
        raise UnusableGrant(f"folder {path}: {problem}; grant the folder itself") from None
    return here


def is_private_folder(path: Path) -> bool:
    """Whether a folder is a home of this user, anybody's `.local`, or lies above one."""
    real = Path(os.path.realpath(path))
    if real.name == ".local" or real == Path("/home") or real.parent == Path("/home"):
        return True
    homes = [Path(os.path.realpath(home)) for home in _list_homes()]
    locals_ = [Path(os.path.realpath(home / ".local")) for home in homes]
    return any(private.is_relative_to(real) for private in (*homes, *locals_))


def is_system_folder(path: Path) -> bool:
    """Whether a folder is where a system keeps its devices and all programs their sockets: the
    kernel's, `/run`, `/tmp` itself. A disk below `/run/media` is its user's."""
    system = any(path.is_relative_to(SYSTEM_item) for SYSTEM_item in _SYSTEM)
    return path in _SHARED or (system and not path.is_relative_to("/run/media"))


def _list_homes() -> list[Path]:
    """This user's by its variable and by the host's list, and that of who became root by sudo."""
    homes = [os.environ.get("HOME", "")]
    for user in (str(os.geteuid()), os.environ.get("SUDO_UID", "")):
        try:
            homes.append(pwd.getpwuid(int(user)).pw_dir)
        except (KeyError, ValueError):
            continue
    # Service users live in /usr/sbin or nowhere: that is no home.
    return [Path(home) for home in homes if home.startswith("/") and not home.startswith("/usr/")]


OPT_OUT = (
    'to run servers without isolation, at your own risk, set `sandbox.backend = "none"`: their'
    " rows are marked uncertified"
)


class SandboxUnavailable(RuntimeError):
    """This host cannot sandbox: what is missing, why, how to fix it, and how to opt out."""

    def __init__(self, what: str, why: str, how: str) -> None:
        super().__init__(f"no sandbox: {what} ({why}); {how}; {OPT_OUT}")
        self.what, self.why, self.how = what, why, how


class LaunchRefused(ValueError):
    """One launch that this backend cannot start safely: what of it, why, and what to do. kind: of
    the failure taxonomy."""

    kind = "policy_denied"


class UnusableWords(LaunchRefused):
    """An argument or variable that no program can be started with."""

    kind = "no_recipe"


class UnusableGrant(LaunchRefused):
    """A granted folder that is not one when the server is started."""

    kind = "bad_grant"


@dataclass(frozen=True)
class BackendCommand:
    """How one launch is started on the host. env: the started program's own, of our making: what a
    listing chose is in none of it.

    files: descriptors it inherits, ours to close once it runs. root: pid of the tree's root where
    that is no child of the started process. end: ends what outlives the killed process group.
    """

    argv: Sequence[str]
    files: Sequence[int] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    root: Callable[[], int | None] | None = None
    end: Callable[[], object] | None = None


class SandboxBackend(Protocol):
    """One way to contain a process tree.

    preflight: raises SandboxUnavailable, naming what, why and how, unless it works on this host.
    version, facts: what decides how well it contains; part of the certificate. command: how to
    start the launch within the policy's limits; raises LaunchRefused.
    """

    @property
    def name(self) -> str: ...

    def version(self) -> str: ...

    def preflight(self) -> None: ...

    def facts(self, policy: SandboxPolicy) -> dict[str, Any]: ...

    def command(self, launch: SandboxLaunch, policy: SandboxPolicy) -> BackendCommand: ...


MIB = 1024 * 1024
SEARCH = os.defpath + ":/usr/sbin:/usr/local/bin"  # where our own programs are looked for
# What programs need of /etc to start; nothing here is a secret.
ETC = (
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/fonts"),
    "/etc/pki",
)
# Linux: 128 KiB a word with its end, 2 MiB in all with the usual stack; the sandbox has words too.
_LONGEST, _MOST = 131_071, 1_500_000
_LOADER = re.compile(r"LD_.*|GCONV_PATH|GETCONF_DIR|GLIBC_TUNABLES|LOCPATH|MALLOC_.*|NLSPATH")
_BASE = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "USER": "user",
    "TMPDIR": "/tmp",
    # A list that a server makes from a Python set must not differ from launch to launch:
    # mcp-atlassian's default fields did, and four contracts changed in every run.
    "PYTHONHASHSEED": "0",
}


def build_environment(launch: SandboxLaunch) -> dict[str, str]:
    """The whole environment of the launch. Raises LaunchRefused for what the C library's loader
    obeys in the program that sets the limits, before it has set them."""
    if match := sorted(name for name in launch.env if _LOADER.fullmatch(name)):
        raise LaunchRefused(
            f"variable {match[0]}: it would load code ahead of the sandbox's limits"
        )
    return {**_BASE, **launch.env, "HOME": HOME}


def check_words(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises UnusableWords naming the argument or variable that no program can be started with."""
    words = [(f"argument {place}", word) for place, word in enumerate(argv)]
    words += [(f"variable {name[:80]!r}", f"{name}={value}") for name, value in env.items()]
    total = 0
    for label, word in words:
        try:
            size = len(os.fsencode(word))
        except UnicodeEncodeError:
            raise UnusableWords(f"{label}: half of a surrogate pair, which is no text") from None
        if "\0" in word:
            raise UnusableWords(f"{label}: a NUL character, which ends every argument")
        total += size + 9  # its end, and a pointer to it
        if size > _LONGEST or total > _MOST:
            raise UnusableWords(
                f"{label}: {size:,} bytes; a program takes {_LONGEST:,} in one argument or"
                f" variable, and {_MOST:,} in all"
            )


def list_identity_files(uid: int) -> dict[str, str]:
    """The small /etc files that name the sandbox's one user."""
    return {
        "/etc/passwd": f"user:x:{uid}:{uid}:user:{HOME}:/bin/sh\n",
        "/etc/group": f"user:x:{uid}:\n",
        "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


FIRST_USER, USERS = 1_200_000_000, 1 << 24  # the users of sandboxes that root starts


def choose_user(first: int = FIRST_USER, count: int = USERS) -> int:
    """A user of one sandbox alone."""
    return first + random.SystemRandom().randrange(count)


def list_limits(policy: SandboxPolicy) -> dict[str, tuple[int, int]]:
    """The kernel's limits on each process, soft and hard, by the names prlimit and docker share."""
    same = {
        "data": policy.memory_mb * MIB,  # not `as`: V8 and Chromium reserve far more than they use
        "nproc": policy.processes,
        "nofile": policy.open_files,
        "fsize": policy.file_mb * MIB,
        "core": 0,
    }
    # Processor time softly first, with a signal that says so; at the hard limit the kernel kills.
    cpu = (policy.cpu_s, policy.cpu_s + 2)
    return {**{name: (value, value) for name, value in same.items()}, "cpu": cpu}


def build_prlimit(policy: SandboxPolicy, *, without: tuple[str, ...] = ()) -> list[str]:
    """The words that put a command under the limits."""
    limits = {name: pair for name, pair in list_limits(policy).items() if name not in without}
    return ["prlimit", *[f"--{name}={soft}:{hard}" for name, (soft, hard) in limits.items()], "--"]


def limit_private_disks(policy: SandboxPolicy) -> dict[str, int]:
    """Bytes of each private file system. They lie in memory: all of them full are within its
    limit."""
    shared = min(64, policy.memory_mb // 8)
    each = min(policy.tmp_mb, (policy.memory_mb - shared) // 2)
    return {"/tmp": each * MIB, HOME: each * MIB, "/dev/shm": shared * MIB}


def make_memory_file(data: bytes) -> int:
    """A descriptor that reads `data`: handed over without a file or a process list showing it."""
    descriptor = os.memfd_create("toolmill")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
