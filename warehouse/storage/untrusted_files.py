"""Reading below an untrusted folder (artefact, bundle, release, checkout): each part of a path is
opened below the one before, no link is followed, no pipe or device waited for."""

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from io import BufferedReader
from itertools import count, islice
from pathlib import Path, PurePath
from stat import S_ISDIR, S_ISREG

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 64  # folders one in another: a third-party tree costs no more than its size
_MOST_FOLDERS, _MOST_NAMES = 100_000, 1_000_000
_REASONS = {
    errno.ELOOP: "it is a link",
    errno.ENOTDIR: "a part on its way is no folder, or a link to one",
    errno.ENOENT: "it is not there",
    errno.ENXIO: "it is no plain file",  # a socket
    errno.ENAMETOOLONG: "its name is too long",
}


class UnreadableFile(OSError):
    """What cannot be read below a folder of somebody else: `filename` in it, `strerror` why."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def read_file(root: Path, relative: str | PurePath, most: int) -> bytes:
    """The bytes of a plain file below `root`, at most `most`. Raises UnreadableFile."""
    with open_file(root, relative) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise _make_error(relative, errno.EFBIG, f"larger than {most:,} bytes")
    return data


def open_file(root: Path, relative: str | PurePath) -> BufferedReader:
    """A plain file below `root` to read. Raises UnreadableFile."""
    file = _open_below(root, relative)
    if not S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _make_error(relative, errno.EINVAL, "it is no plain file")
    return open(file, "rb")


def open_folder(root: Path, relative: str | PurePath = "") -> int:
    """A descriptor of a folder below `root`, or of `root`. Raises UnreadableFile."""
    return _open_below(root, relative, os.O_DIRECTORY)


def list_files(
    root: Path,
    relative: str | PurePath = "",
    skip: Collection[str] = (),
    unread: dict[str, str] | None = None,
) -> Iterator[Path]:
    """Paths below `root` of all but folders, links included: each folder's names in order, then its
    folders, but for `skip`. Raises UnreadableFile, also for a tree too deep or large; a folder
    below is noted in `unread` instead, if given."""
    for here, _, names in _walk_folders(root, relative, skip, unread):
        yield from (here / name for name in names)


def measure_tree(root: Path, unread: dict[str, str] | None = None) -> int:
    """Bytes of all files below a folder. Raises UnreadableFile as `list_files` does."""
    return sum(
        os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
        for _, folder, names in _walk_folders(root, "", (), unread)
        for name in names
    )


def _walk_folders(
    root: Path, relative: str | PurePath, skip: Collection[str], unread: dict[str, str] | None
) -> Iterator[tuple[Path, int, list[str]]]:
    """Each folder: its path below the root, a descriptor, and the names of what is no folder."""
    budget = _ReadBudget()
    # Each folder is opened in the one that holds it, which stays open: from the root, a chain of
    # 2,000 folders costs 2,000,000 openings.
    folders = [(Path(relative), open_folder(root, relative))]
    left: list[list[str]] = []
    try:
        while folders:
            if len(left) < len(folders):  # it is met for the first time
                names, below = _list_folder(*folders[-1], skip, budget)
                left.append(below)
                yield *folders[-1], names
            elif left[-1]:
                here = folders[-1][0] / left[-1].pop(0)
                try:
                    budget.spend_folder(here, len(folders))
                    folders.append((here, _open_here(here, folders[-1][1])))
                except UnreadableFile as error:
                    if unread is None:
                        raise
                    unread[str(here)] = error.strerror or ""
            else:
                left.pop()
                os.close(folders.pop()[1])
    finally:
        for _, folder in folders:
            os.close(folder)


@dataclass
class _ReadBudget:
    folders: int = field(default_factory=lambda: _MOST_FOLDERS)
    names: int = field(default_factory=lambda: _MOST_NAMES)

    def spend_folder(self, here: Path, depth: int) -> None:
        """Raises UnreadableFile for a folder that lies too deep, or is one too many."""
        self.folders -= 1
        if depth > _DEEPEST:
            raise _make_error(here, errno.EFBIG, f"more than {_DEEPEST} folders one in another")
        if self.folders < 0:
            raise _make_error(here, errno.EFBIG, f"more than {_MOST_FOLDERS:,} folders")


def _list_folder(
    here: Path, folder: int, skip: Collection[str], budget: _ReadBudget
) -> tuple[list[str], list[str]]:
    """The names of what is no folder in an open one, and of its folders, in order."""
    entries = _scan_open(folder, here, budget.names)
    budget.names -= len(entries)
    names = [name for name, is_folder in entries if not is_folder]
    return names, [name for name, is_folder in entries if is_folder and name not in skip]


def remove_tree(folder: Path) -> None:
    """Removes a folder and all that it holds, whatever its depth. Raises OSError."""
    clear_folder(folder)
    folder.rmdir()


def clear_folder(folder: Path) -> None:
    """Empties a folder and keeps it, for it may be mounted. Raises OSError."""
    fresh, removed = count(), 0
    with hold_folder(os.open(folder, _OPEN)) as top:
        while names := os.listdir(top):
            removed += len(names)
            if removed > _MOST_NAMES:
                raise _make_error(folder, errno.EFBIG, f"more than {_MOST_NAMES:,} files to remove")
            for name in names:
                _remove_entry(name, top, fresh)


def _remove_entry(name: str, top: int, fresh: Iterator[int]) -> None:
    """Removes an entry of the top folder; nested folders move to the top first, at any depth."""
    if _try_unlink(name, top):
        return
    with hold_folder(_open_locked(name, top)) as below:
        for child in os.listdir(below):
            if not _try_unlink(child, below):
                os.close(_open_locked(child, below))  # else it could not be moved
                moved = f".removing-{next(fresh)}"
                while _is_there(moved, top):
                    moved = f".removing-{next(fresh)}"
                os.rename(child, moved, src_dir_fd=below, dst_dir_fd=top)
    os.rmdir(name, dir_fd=top)


def _try_unlink(name: str, here: int) -> bool:
    """Whether it was removed; a folder is not."""
    try:
        os.unlink(name, dir_fd=here)
    except IsADirectoryError:
        return False
    except PermissionError:
        if not S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            raise
        return False
    return True


def _is_there(name: str, here: int) -> bool:
    try:
        os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _open_locked(name: str, here: int) -> int:
    """A folder that its owner took all rights from, opened all the same."""
    with hold_folder(os.open(name, os.O_PATH | _OPEN, dir_fd=here)) as handle:
        os.chmod(f"/proc/self/fd/{handle}", 0o777)
    return os.open(name, _OPEN, dir_fd=here)


@contextmanager
def hold_folder(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def match_paths(root: Path, pattern: str) -> list[Path]:
    """Paths below `root` of a pattern like `lib/*/x`, in order; links lead nowhere."""
    paths = [Path()]
    for part in PurePath(pattern).parts:
        paths = [
            here / name
            for here in paths
            for name in _list_names(root, here)
            if fnmatchcase(name, part)
        ]
    return paths


def _list_names(root: Path, relative: Path) -> list[str]:
    try:
        return [name for name, _ in _scan_folder(root, relative)]
    except UnreadableFile:
        return []


def _scan_folder(root: Path, relative: Path) -> list[tuple[str, bool]]:
    folder = open_folder(root, relative)
    try:
        return _scan_open(folder, relative, _MOST_NAMES)
    finally:
        os.close(folder)


def _scan_open(folder: int, here: Path, most: int) -> list[tuple[str, bool]]:
    """(name, whether it is a folder itself) of all that lies in one folder, in order."""
    with os.scandir(folder) as entries:
        children = [(e.name, e.is_dir(follow_symlinks=False)) for e in islice(entries, most + 1)]
    if len(children) > most:
        raise _make_error(here, errno.EFBIG, f"more than {_MOST_NAMES:,} names")
    return sorted(children)


def _open_here(here: Path, above: int) -> int:
    try:
        return os.open(here.name, _READ | os.O_DIRECTORY, dir_fd=above)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or "it cannot be opened")
        raise _make_error(here, error.errno, reason) from error


def _open_below(root: Path, relative: str | PurePath, kind: int = 0) -> int:
    names = PurePath(relative).parts
    if PurePath(relative).is_absolute() or ".." in names:
        raise _make_error(relative, errno.EINVAL, "it leads out of its folder")
    try:
        here = os.open(root, _READ | (os.O_DIRECTORY if names else kind))
        for left, name in enumerate(names, 1 - len(names)):
            try:
                below = os.open(name, _READ | (os.O_DIRECTORY if left else kind), dir_fd=here)
            finally:
                os.close(here)
            here = below
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or "it cannot be opened")
        raise _make_error(relative, error.errno, reason) from error
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise _make_error(relative, errno.EINVAL, "it is no name of a file") from error
    return here


def _make_error(relative: str | PurePath, number: int | None, reason: str) -> UnreadableFile:
    name = str(relative).encode("utf-8", "replace").decode()
    return UnreadableFile(number, reason, name if len(name) <= 120 else f"{name[:117]}...")
