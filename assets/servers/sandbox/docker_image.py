"""The default image of the backend docker: an empty root for the host's /usr to lie in."""

import io
import os
import tarfile

from assets.servers.sandbox import environment
from assets.servers.sandbox.spec import HOME

EMPTY = "localhost/toolmill-sandbox:1"
_FOLDERS = ("usr", "etc/ssl", "proc", "sys", "dev", "tmp", HOME.lstrip("/"), "srv", "run", "var")
MERGED = ("bin", "lib", "lib64", "sbin")  # links into /usr on most hosts


def build_empty_root() -> bytes:
    """The image's files: folders, links into /usr, the small /etc files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in (*_FOLDERS, *(name for name in MERGED if is_folder(name))):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in MERGED:
            if os.path.islink(f"/{name}"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
                archive.addfile(entry)
        for path, text in environment.list_identity_files(65_534).items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def is_folder(name: str) -> bool:
    """Whether the host has /NAME as a folder of its own, no link into /usr."""
    return os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")
