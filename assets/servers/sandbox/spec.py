"""What is to be started in a sandbox and within which limits: plain facts."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HOME = "/home/user"
_SYSTEM = ("/proc", "/sys", "/dev", "/run")
_SHARED = (Path("/tmp"), Path("/var/tmp"))


@dataclass(frozen=True)
class SandboxSettings:
    """Limits of one sandbox, as a user can set them. memory_mb binds the tree's proportional set
    size and each process's private data; wall_s ends everything; stdout_mb and message_mb bound
    what is read back. Plain Python: the sandbox runs without any package.

    backend: `auto` takes bubblewrap, else docker, else refuses; `none` contains nothing, and every
    row is marked uncertified. engine: the program behind docker (`podman` takes the same words).
    image: of the engine; empty for the host's own /usr. scripts: `second` lets a fetch that failed
    run install scripts, inside. fetch_hosts: `host` or `host:port` that the fetch phase may reach
    besides the registries in use."""

    backend: Literal["auto", "bubblewrap", "docker", "none"] = "auto"
    engine: str = "docker"
    image: str = ""
    memory_mb: int = 1024
    processes: int = 128  # threads count too
    open_files: int = 1024
    file_mb: int = 256
    tmp_mb: int = 512
    volume_mb: int = 1024
    cpu_s: int = 120
    wall_s: float = 60.0
    stdout_mb: int = 64
    message_mb: int = 16
    network: Literal["none", "full"] = "none"
    scripts: Literal["never", "second"] = "never"
    fetch_hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class SandboxPolicy(SandboxSettings):
    """Limits of one sandbox. allow_loopback: bundles may be downloaded from this machine (the
    demo's are)."""

    allow_loopback: bool = False


class MountRefused(ValueError):
    """A folder of the host that is never shown to a server: which, and what to do."""


@dataclass(frozen=True)
class Mount:
    """A host path shown inside at `inside`, read-only unless `writable`. Raises MountRefused for a
    home folder, its `.local`, and what lies above them: whatever asks for it, no launch has it."""

    host: Path
    inside: str
    writable: bool = False

    def __post_init__(self) -> None:
        if is_private_folder(self.host):
            raise MountRefused(
                f"{self.host} is a home folder, a `.local` or lies above one, and is never shown to"
                " a server: name the folder that holds the server or the runtime alone"
            )

    @classmethod
    def same(cls, host: Path, *, writable: bool = False) -> "Mount":
        return cls(host, str(host), writable)


@dataclass(frozen=True)
class Launch:
    """A command and what it sees. `env` is its whole environment besides HOME and friends;
    `dirs` are empty writable folders below HOME made for it; `uid` fixes the user (root host);
    `volume` is a folder of the host that is its HOME, in place of a private one; `segments`: it
    may have System V shared memory, as a database of ours needs (bubblewrap)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cwd: str = HOME
    dirs: tuple[str, ...] = ()
    uid: int | None = None
    volume: Path | None = None
    segments: bool = False


def is_private_folder(path: Path) -> bool:
    """Whether a folder is a home of this user, anybody's `.local`, or lies above one."""
    real = Path(os.path.realpath(path))
    if real.name == ".local" or real == Path("/home") or real.parent == Path("/home"):
        return True
    homes = [Path(os.path.realpath(home)) for home in _list_homes()]
    locals_ = [Path(os.path.realpath(home / ".local")) for home in homes]
    return any(one.is_relative_to(real) for one in (*homes, *locals_))


def is_system_folder(path: Path) -> bool:
    """Whether a folder is where a system keeps its devices and all programs their sockets: the
    kernel's, `/run`, `/tmp` itself. A disk below `/run/media` is its user's."""
    system = any(path.is_relative_to(one) for one in _SYSTEM)
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
