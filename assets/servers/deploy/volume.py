"""The volume of a server: its home, kept in a folder of toolmill's own that outlives sessions."""

import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from assets.servers.recipes.placeholders import DATA
from assets.servers.sandbox.spec import HOME, Mount

_FIRST_USER, _USERS = 1_200_000_000, 1 << 24  # as bubblewrap's, but the same in every session
_WAIT_S, _EVERY_S = 10.0, 0.1  # for a session that is ending


class VolumeBusy(RuntimeError):
    """Another session holds the volume: which, and what to do."""


@contextmanager
def hold_volume(volume: Path | None, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Holds a volume for one session, across processes; the kernel frees it when its holder dies.
    Raises VolumeBusy after `wait_s` seconds: two sessions never write one volume."""
    held, until = _try_hold(volume), time.monotonic() + wait_s
    while volume and held is None:
        _check_patience(volume, until)
        time.sleep(_EVERY_S)
        held = _try_hold(volume)
    with _release_after(held):
        yield


@asynccontextmanager
async def hold_volume_async(volume: Path | None, wait_s: float) -> AsyncIterator[None]:
    """`hold_volume` on an event loop."""
    held, until = _try_hold(volume), time.monotonic() + wait_s
    while volume and held is None:
        _check_patience(volume, until)
        await anyio.sleep(_EVERY_S)
        held = _try_hold(volume)
    with _release_after(held):
        yield


def choose_volume_user(volume: Path) -> int:
    """Who its server runs as: the same user in every session, and ourselves unless we are root."""
    return _FIRST_USER + int(volume.name[:8], 16) % _USERS if os.geteuid() == 0 else os.getuid()


def prepare_volume(volume: Path, user: int, mounts: Iterable[Mount]) -> None:
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


def _list_places(mounts: Iterable[Mount]) -> list[str]:
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
def _release_after(held: int | None) -> Iterator[None]:
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
