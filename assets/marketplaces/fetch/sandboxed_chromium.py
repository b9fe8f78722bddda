"""Jail: a Chromium that sees `/usr`, a few files of `/etc` and a temporary folder, nothing else.

Pages of a marketplace are third-party code. Playwright runs Chromium without Chromium's own sandbox
when it is root, so a flaw of the browser would be a flaw of this machine's files.
"""

import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

_ETC = (
    *("alternatives", "ca-certificates", "chromium", "chromium.d", "fonts", "group", "hosts"),
    *("ld.so.cache", "localtime", "nsswitch.conf", "passwd", "resolv.conf", "ssl/certs"),
)
_ROOTS = ("bin", "lib", "lib32", "lib64", "sbin")  # links into /usr on a merged system


def make_launcher(chromium: str, folder: Path) -> Path | None:
    """An executable in `folder` that starts `chromium` contained, or None where bubblewrap cannot
    run here (not installed, or user namespaces are forbidden)."""
    options = _make_options(Path(chromium), folder)
    if options is None or not _is_working(tuple(options)):
        return None
    script = folder / "chromium"
    words = shlex.join(options)
    # bubblewrap's own environment stays readable inside as /proc/1/environ: it gets none.
    start = f"exec /usr/bin/env -i {words} -- {shlex.quote(chromium)}"
    script.write_text(f'#!/bin/sh\n{start} "$@"\n')
    script.chmod(0o755)
    return script


def _make_options(chromium: Path, folder: Path) -> list[str] | None:
    bwrap = shutil.which("bwrap")
    if bwrap is None or sys.platform != "linux":
        return None
    options = [bwrap, "--die-with-parent", "--new-session", "--unshare-user", "--unshare-pid"]
    options += ["--unshare-ipc", "--unshare-uts", "--uid", "65534", "--gid", "65534"]
    options += ["--cap-drop", "ALL", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]
    options += ["--setenv", "HOME", str(folder), "--setenv", "LANG", "C.UTF-8"]
    options += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for name in _ROOTS:
        path = Path("/") / name
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if not chromium.resolve().is_relative_to("/usr"):
        home = chromium.resolve().parent
        options += ["--ro-bind", str(home), str(home)]
    return [*options, "--tmpfs", "/tmp", "--bind", str(folder), str(folder), "--chdir", str(folder)]


@cache
def _is_working(options: tuple[str, ...]) -> bool:
    """Whether a process starts under these options."""
    try:
        done = subprocess.run(
            [*options, "--", "/usr/bin/true"], capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
