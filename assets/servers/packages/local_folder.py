"""A local folder as the sandbox's user can read it."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warehouse.storage.untrusted_files import open_file

_MAX_MB = 1024


class FolderTooLarge(ValueError):
    """A folder that is closed to the sandbox's user and too large to be copied."""


@contextmanager
def make_readable(folder: Path) -> Iterator[Path]:
    """The folder itself, or a copy of it where some of it is closed to others.

    Only root's sandbox runs as another user than the caller; `mktemp -d` makes folders of mode
    0700, so that is met often. The copy has the same contents, links and executable bits.
    """
    if os.geteuid() != 0 or not _is_closed(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="toolmill-folder-") as made:
        copy = Path(made) / "copy"  # below a folder of root's alone: nobody else sees it
        _copy_folder(folder, copy)
        yield copy


def _is_closed(folder: Path) -> bool:
    """Whether any folder or file of it is out of others' reach."""
    for parent, folders, names in os.walk(folder):
        if os.lstat(parent).st_mode & 0o005 != 0o005:
            return True
        for name in (*folders, *names):
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if stat.S_ISREG(mode) and not mode & 0o004:
                return True
    return False


def _copy_folder(folder: Path, copy: Path) -> None:
    left = _MAX_MB << 20
    for parent, folders, names in os.walk(folder):
        here = copy / Path(parent).relative_to(folder)
        here.mkdir()
        here.chmod(0o755)
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode):
                os.symlink(os.readlink(path), here / name)
            elif stat.S_ISREG(about.st_mode):
                left -= about.st_size
                if left < 0:
                    raise FolderTooLarge(
                        f"{folder}: closed to others and larger than {_MAX_MB} MB, so the sandbox's"
                        f" user can read neither it nor a copy; open it (chmod -R o+rX {folder})"
                    )
                relative = Path(path).relative_to(folder)
                with open_file(folder, relative) as source, (here / name).open("xb") as file:
                    shutil.copyfileobj(source, file)
                (here / name).chmod(0o755 if about.st_mode & 0o111 else 0o644)
