"""Servers of one's own: the recipe of a command in a folder of this host, or of a local image.

Its digest covers what the folder holds, so that a changed script is launched anew in the next run;
what its user trusts (`deploy/confirm.py`) is the command and the folder, which they may go on
editing.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from assets.marketplaces.launch.command import read_launch
from assets.marketplaces.listing import Listing
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fill import fill_arguments, fill_environment
from assets.servers.recipes.recipe import Recipe, Unlaunchable
from assets.servers.sandbox.spec import is_private_folder, is_system_folder
from warehouse.storage.untrusted_files import UnreadableFile, list_files, open_file

FindImage = Callable[[str], str]
SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts")
_RUNTIMES = ("python", "python3", "node", "uv", "deno", "bun")
_SKIPPED = (".git", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
_MOST_READ = 256 << 20  # bytes of files that are hashed; beyond, size and time of change count
_CHUNK = 1 << 20


def plan_local(
    listing: Listing, server_id: str, find_image: FindImage | None, *, placeholders: bool
) -> Recipe | Unlaunchable:
    """The recipe of a listing that `is_local`, or why there is none.

    find_image: image name -> its id on this host; raises PackageError where there is none.
    """
    launch, about = read_launch(listing), {"context": "", "placeholders": placeholders}
    folder, words = launch.directory, (listing.command or "", *listing.args)
    try:
        if folder:
            check_command(folder, words)
            integrity = digest_folder(folder)
        elif find_image is None:
            return Unlaunchable(server_id, "policy_denied", "local images are not looked for here")
        else:
            integrity = find_image(str(launch.entry))
    except PackageError as error:
        more = " (the entry's `cwd` names its folder)" if folder else ""
        return Unlaunchable(server_id, error.kind, f"{error}{more}")
    own = listing.args if folder else launch.own_args
    args, args_made_up = fill_arguments(own, **about, folder=folder)
    env, spare, env_made_up = fill_environment(listing.env, **about, folder=folder)
    return Recipe(
        server_id=server_id,
        ecosystem="private",
        name=listing.name if folder else str(launch.entry),
        integrity=integrity,
        args=args,
        env=env,
        spare_env=spare,
        placeholders=(*args_made_up, *env_made_up),
        command=(str(listing.command),) if folder else (),
        directory=folder,
    )


def check_command(folder: str, words: Sequence[str]) -> None:
    """Raises PackageError where the folder is none that a server is shown, or the script that the
    words name is not in it."""
    path, named = Path(folder), f"its folder {folder}"
    real = os.path.realpath(path)
    if is_private_folder(path):
        why = "is a home folder or lies above one: name the server's own folder"
        raise PackageError("policy_denied", f"{named} {why}")
    if is_system_folder(Path(real)):
        why = "is the system's: name a folder that holds the server alone"
        raise PackageError("policy_denied", f"{named} {why}")
    if not os.path.lexists(path):
        raise PackageError("needs_software", f"{named} is not there")
    if real != str(path):
        why = f"is a link, or behind one, to {real}: name that if it is the one you mean"
        raise PackageError("policy_denied", f"{named} {why}")
    if not os.path.isdir(path):
        raise PackageError("needs_software", f"{named} is no folder")
    script = find_script(words)
    if script and not os.path.isfile(path / script):
        raise PackageError("needs_software", f"{named} holds no file {script!r:.120} to run")
    if script and not Path(os.path.realpath(path / script)).is_relative_to(path):
        why = "is not in it: name the folder that holds both"
        raise PackageError("policy_denied", f"{named}: its script {script!r:.120} {why}")


def find_script(words: Sequence[str]) -> str | None:
    """The file that a runtime is told to run."""
    name = os.path.basename(words[0]) if words else ""
    if name not in _RUNTIMES or "-m" in words or "-c" in words or "-e" in words:
        return None
    return next((word for word in words[1:] if word.endswith(SCRIPTS) and word[0] != "-"), None)


def digest_folder(folder: str) -> str:
    """`sha256:<hex>` over names, modes and contents of what a folder holds, without caches and
    `.git`; of what is beyond 256 MB, over size and time of change. Raises PackageError."""
    root, left, hashed = Path(folder), _MOST_READ, hashlib.sha256()
    try:
        for path in list_files(root, skip=_SKIPPED):
            about = os.lstat(root / path)
            facts = [os.fsencode(path), b"%o" % (about.st_mode & 0o170111)]
            if stat.S_ISLNK(about.st_mode):
                facts.append(os.fsencode(os.readlink(root / path)))
            elif stat.S_ISREG(about.st_mode) and about.st_size <= left:
                left -= about.st_size
                facts.append(_hash_file(root, path, about.st_size))
            elif stat.S_ISREG(about.st_mode):
                facts.append(b"%d %d" % (about.st_size, about.st_mtime_ns))
            hashed.update(b"".join(b"%d:%s" % (len(fact), fact) for fact in facts))
    except OSError as error:  # UnreadableFile, or a name that went away in between
        kind = "oversize" if error.errno == errno.EFBIG else "needs_software"
        raise PackageError(kind, f"its folder {folder} cannot be read: {error}") from None
    return f"sha256:{hashed.hexdigest()}"


def _hash_file(root: Path, path: Path, size: int) -> bytes:
    """At most `size` bytes: a file may grow while it is read. One that is closed to us is so to the
    server too."""
    hashed = hashlib.sha256()
    try:
        with open_file(root, path) as file:
            while size > 0 and (chunk := file.read(min(size, _CHUNK))):
                size -= len(chunk)
                hashed.update(chunk)
    except UnreadableFile as error:
        return b"unreadable: %d" % (error.errno or 0)
    return hashed.digest()
