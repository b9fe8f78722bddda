"""Grants: the network, folders and volume that a user gives one server beyond its sandbox."""

import fcntl
import os
import stat
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio

from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.gateway import parse_host
from assets.servers.sandbox.spec import HOME, SandboxMount, is_private_folder, is_system_folder

Network = Literal["none", "full"]
# Who a server runs as in folders that toolmill made for it as root; beside that of the fetch phase.
SERVER_UID = 1_199_999_998


@dataclass(frozen=True)
class LocalSite:
    """A web site that toolmill itself serves, at a socket of this host: to who is granted it,
    http://HOST. It is at no address."""

    host: str
    socket: Path


@dataclass(frozen=True)
class ServerGrant:
    """What one server may reach besides its own files.

    network: None for the sandbox's. folders: of this host, shown where `mount_folders` says. hosts:
    as `parse_host` reads them, the only ones that it reaches, besides sites of toolmill's own.
    volume: its home outlives its sessions. personal: the folders are a user's own: nobody changes
    whose they are, and what a listing chose runs beside them only once that is confirmed. Else they
    are toolmill's, made for this launch.
    """

    network: Network | None = None
    folders: tuple[SandboxMount, ...] = ()
    hosts: tuple[str, ...] = ()
    sites: tuple[LocalSite, ...] = ()
    volume: bool = False
    personal: bool = False

    @property
    def reaches_own(self) -> bool:
        """Whether it reaches something that its user keeps."""
        return self.personal and bool(self.folders or self.hosts or self.volume)

    @property
    def has_network(self) -> bool:
        """Whether it reaches hosts, some or all: what they answer moves."""
        return self.network == "full" or bool(self.hosts)

    @property
    def reached(self) -> tuple[str, ...]:
        """Names of the single hosts that it reaches, whose words it may hand on."""
        return tuple(
            [parse_host(host)[0] for host in self.hosts] + [site.host for site in self.sites]
        )

    def with_network_of(self, other: "ServerGrant") -> "ServerGrant":
        """This grant with what another reaches of the network: a server that is called in a folder
        of toolmill's own keeps its hosts, and gets none of its user's folders."""
        return replace(self, network=other.network, hosts=other.hosts)

    @property
    def user(self) -> int | None:
        """The user that a server runs as so that it can use the folders: their owner, never root;
        None for one of the sandbox's own. Only root's sandbox has a choice."""
        if not self.folders or os.geteuid() != 0:
            return os.getuid() if self.folders else None
        owners = [os.stat(mount.host).st_uid for mount in _list_writable_first(self.folders)]
        return next((owner for owner in owners if owner), None)


def parse_folder(text: str) -> tuple[Path, bool]:
    """(the folder, whether it may be written) of `PATH` or `PATH:rw`. Raises ValueError."""
    written = text.endswith(":rw")
    try:
        path = Path(text.removesuffix(":rw").removesuffix(":ro")).expanduser()
    except RuntimeError:
        raise ValueError(f"folder {text!r}: there is no home folder of that name") from None
    if not path.is_absolute():
        raise ValueError(f"folder {text!r}: expected a full path, or one that begins with ~/")
    return Path(os.path.normpath(path)), written


def mount_folders(folders: Iterable[str]) -> tuple[SandboxMount, ...]:
    """Where `PATH[:rw]` are seen inside: the first at the path that recipes make up for a folder,
    so that their arguments name it, further ones by their own names beside it. Raises ValueError
    for two of one name, and for what is never shown to a server."""
    mounts: list[SandboxMount] = []
    for text in folders:
        path, written = parse_folder(text)
        inside = f"{HOME}/{path.name}" if mounts else DATA
        if other := next((mount.host for mount in mounts if mount.inside == inside), None):
            raise ValueError(f"folders {other} and {path}: both are {inside} inside; grant one")
        mounts.append(SandboxMount(path, inside, writable=written))
    return tuple(mounts)


def find_folder_problem(path: Path) -> str | None:
    """Why a folder cannot be granted: what it is and what to do; None where it can."""
    real = Path(os.path.realpath(path))
    if is_private_folder(path):
        return "a home folder, a `.local` or above one: grant the one folder in it that is needed"
    if is_system_folder(real):
        return (
            "other programs keep sockets there, which answer a server: grant a folder of your own"
        )
    if not os.path.exists(real):
        return "no such folder: make it, or take the grant back"
    if real != path:
        return f"a link, or behind one, that leads to {real}: grant that if it is what you mean"
    if not os.path.isdir(real):
        return f"a file: grant the folder that holds it, {real.parent}, or one made for it"
    return None


def find_grant_problem(grant: ServerGrant, own_paths: Iterable[Path] = ()) -> str | None:
    """Why a server cannot be launched with its grant, naming the folder and the fix. own: files and
    folders of toolmill's own."""
    for mount in grant.folders:
        problem = find_folder_problem(mount.host)
        if not problem and grant.personal:
            problem = _find_overlap(mount, own_paths)
        if problem:
            return f"folder {mount.host}: {problem}"
    user = grant.user
    for mount in grant.folders if grant.personal else ():
        if not _is_open(mount, user):
            return f"folder {mount.host}: {_explain_closed(mount, user)}"
    return None


def prepare_folders(grant: ServerGrant) -> None:
    """Makes what root made for a launch writable for the launch; a user's own are left alone."""
    for mount in grant.folders:
        if mount.writable and not grant.personal:
            assign_folder(mount.host)


def assign_folder(folder: Path) -> None:
    """Makes the user that servers run as own what root owns in a folder of toolmill's own."""
    if os.geteuid() != 0:
        return
    for parent, folders, names in os.walk(folder):
        for path in (parent, *(os.path.join(parent, name) for name in (*folders, *names))):
            if os.lstat(path).st_uid == 0:
                os.chown(path, SERVER_UID, SERVER_UID, follow_symlinks=False)


def list_granted_places(recipe: LaunchRecipe, grant: ServerGrant) -> set[str]:
    """The made-up values (`arg:0`, `env:NAME`) that are the path of a granted folder, or of one in
    the server's volume."""
    if not grant.volume and DATA not in (mount.inside for mount in grant.folders):
        return set()
    words = [(f"arg:{place}", word) for place, word in enumerate(recipe.args)]
    words += [(f"env:{name}", value) for name, value in recipe.env]
    return {place for place, word in words if word == DATA}


def _find_overlap(mount: SandboxMount, own_paths: Iterable[Path]) -> str | None:
    """Whether a server would see what toolmill keeps, or could write what it is told by."""
    for path in own_paths:
        real, lies = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent)) / path.name
        if real.is_dir() and (mount.host.is_relative_to(real) or real.is_relative_to(mount.host)):
            return f"toolmill keeps its own files in {real}: name a folder apart from that"
        # Who can write where a link lies can lead it elsewhere.
        for place in (real, lies) if mount.writable else ():
            if place.is_relative_to(mount.host):
                return (
                    f"{place} lies in it, so the server could grant itself more: grant it read-only"
                )
    return None


def _list_writable_first(folders: Sequence[SandboxMount]) -> list[SandboxMount]:
    return sorted(folders, key=lambda mount: not mount.writable)


def _is_open(mount: SandboxMount, user: int | None) -> bool:
    """Whether the user that the server runs as may read the folder, and write it where granted."""
    if os.geteuid() != 0:
        return os.access(mount.host, os.R_OK | os.X_OK | (os.W_OK if mount.writable else 0))
    about = os.stat(mount.host)
    rights = 0o7 if mount.writable else 0o5
    if user == about.st_uid:
        return stat.S_IMODE(about.st_mode) >> 6 & rights == rights
    return about.st_mode & rights == rights


def _explain_closed(mount: SandboxMount, user: int | None) -> str:
    way = "written" if mount.writable else "read"
    who = "you" if os.geteuid() != 0 else f"user {user}" if user else "anybody but root"
    fix = "a server never runs as root: give the folder to a user (chown -R USER FOLDER)"
    if os.geteuid() != 0 or os.stat(mount.host).st_uid:
        fix = "change its owner or its mode, or grant another"
    return f"it cannot be {way} by {who}, as whom the server would run; {fix}"


_FIRST_USER, _USERS = 1_200_000_000, 1 << 24  # as bubblewrap's, but the same in every session
_WAIT_S, _EVERY_S = 10.0, 0.1  # for a session that is ending


class VolumeBusy(RuntimeError):
    """Another session holds the volume: which, and what to do."""


@contextmanager
def hold_volume(volume: Path | None, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Holds a volume for one session, across processes; the kernel frees it when its holder dies.
    Raises VolumeBusy after `wait_s` seconds: two sessions never write one volume."""
    lock, until = _try_hold(volume), time.monotonic() + wait_s
    while volume and lock is None:
        _check_patience(volume, until)
        time.sleep(_EVERY_S)
        lock = _try_hold(volume)
    with _release_after(lock):
        yield


@asynccontextmanager
async def hold_volume_async(volume: Path | None, wait_s: float) -> AsyncIterator[None]:
    """`hold_volume` on an event loop."""
    lock, until = _try_hold(volume), time.monotonic() + wait_s
    while volume and lock is None:
        _check_patience(volume, until)
        await anyio.sleep(_EVERY_S)
        lock = _try_hold(volume)
    with _release_after(lock):
        yield


def choose_volume_user(volume: Path) -> int:
    """Who its server runs as: the same user in every session, and ourselves unless we are root."""
    return _FIRST_USER + int(volume.name[:8], 16) % _USERS if os.geteuid() == 0 else os.getuid()


def prepare_volume(volume: Path, user: int, mounts: Iterable[SandboxMount]) -> None:
    """Makes the volume its user's, with a folder of its own wherever one is mounted in it: a link
    that the server left there would be followed. While the volume is held."""
    volume.mkdir(parents=True, exist_ok=True, mode=0o700)
    volume.chmod(0o700)
    paths = [volume / Path(place).relative_to(HOME).parts[0] for place in _list_places(mounts)]
    for path in paths:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True, mode=0o700)
    if os.geteuid() != 0:
        return
    moved = os.lstat(volume).st_uid != user  # its user is another one beside a granted folder
    for path in _walk(volume) if moved else paths:
        os.chown(path, user, user, follow_symlinks=False)
    os.chown(volume, user, user, follow_symlinks=False)


def _list_places(mounts: Iterable[SandboxMount]) -> list[str]:
    inside = [mount.inside for mount in mounts]
    return [DATA, *(path for path in inside if path.startswith(f"{HOME}/"))]


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in (*folders, *names))


def _try_hold(volume: Path | None) -> int | None:
    """A descriptor that holds the lock, named after us; None where another session has it."""
    if volume is None:
        return None
    volume.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = volume.with_suffix(".lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def _check_patience(volume: Path, until: float) -> None:
    if time.monotonic() < until:
        return
    holder = volume.with_suffix(".lock").read_text().strip() or "?"
    raise VolumeBusy(
        f"its volume is held by a session of process {holder}: end that one, or try again once it"
        " has ended (`toolmill serve` keeps a server running for serve.warm.idle_s)"
    )


@contextmanager
def _release_after(lock: int | None) -> Iterator[None]:
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)
