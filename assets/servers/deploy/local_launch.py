"""Launches of one's own commands: what runs in a folder of this host, and what it sees of it.

The one way for the nightly run, a call and `toolmill probe --dir`.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assets.marketplaces.launch.runners import UV_VALUED, split_options
from assets.servers.credentials.secrets import Given
from assets.servers.packages.local_folder import FolderTooLarge, make_readable
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.local_recipe import SCRIPTS, check_command
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import Recipe
from assets.servers.sandbox.runtimes import is_python, list_python_files
from assets.servers.sandbox.spec import Launch, Mount, MountRefused
from assets.servers.sandbox.toolchain import Toolchain

_SEARCH = "/usr/local/bin:/usr/bin:/bin"  # the PATH of every sandbox
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_ENVIRONMENTS = (".venv", "venv")


@contextmanager
def open_local_launch(
    recipe: Recipe, toolchain: Toolchain, given: Given | None = None
) -> Iterator[Launch]:
    """The launch of a recipe with a directory, which is shown read-only at its own path while this
    is open. Raises PackageError naming what is not there, or never shown to a server."""
    folder = str(recipe.directory)
    words = (*recipe.command, *recipe.args)
    check_command(folder, words)
    try:
        argv, mounts = _find_program(words, Path(folder), toolchain)
        with make_readable(Path(folder)) as readable:
            yield Launch(
                argv=argv,
                env={**dict(recipe.env), **(given.env if given else {})},
                mounts=(*map(Mount.same, toolchain.binds), *mounts, Mount(readable, folder)),
                cwd=folder,
                dirs=(DATA,),
            )
    except FolderTooLarge as error:
        raise PackageError("oversize", str(error)) from None
    except MountRefused as error:
        raise PackageError("policy_denied", str(error)) from None


def _find_program(
    words: tuple[str, ...], folder: Path, toolchain: Toolchain
) -> tuple[tuple[str, ...], list[Mount]]:
    """(the command line inside, what it needs of this host besides the folder)."""
    name = words[0]
    if name == "uv":
        words = _replace_uv(words, folder)
        name = words[0]
    if name == "node" and toolchain.node:
        return (str(toolchain.node), *words[1:]), []
    if "/" in name:
        path = Path(os.path.normpath(folder / os.path.expanduser(name)))
    elif (own := _find_in_environment(folder, name)) is not None:
        path = own
    elif _PYTHON.fullmatch(name):
        return (_find_python(name, toolchain), *words[1:]), []
    else:
        path = Path(shutil.which(name, path=_SEARCH) or "")
        if not path.is_absolute():
            found = f"no program {name!r:.120} in {_SEARCH} or an environment of {folder}"
            raise PackageError("needs_software", f"{found}: install it, or name it by its path")
    if not os.path.isfile(path):
        raise PackageError("needs_software", f"no program {str(path)!r:.200}")
    if not os.access(path, os.X_OK):
        raise PackageError("needs_software", f"{str(path)!r:.200} is not executable: chmod +x")
    return (str(path), *words[1:]), _mount_program(path, folder)


def _replace_uv(words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """What `uv run` would start, in the environment that it has made: inside there is no network to
    make one. Raises PackageError."""
    _, before = split_options(list(words[1:]), UV_VALUED)
    if before[:1] != ["run"]:
        raise PackageError("needs_software", f"`uv {' '.join(before[:1])[:40]}` is not `uv run`")
    options, command = split_options(before[1:], UV_VALUED - {"-m"})
    command = command[1:] if command[:1] == ["--"] else command
    if any(option in ("-m", "--module") for option, _ in options):
        command = ["python", "-m", *command]
    elif command and command[0].endswith(SCRIPTS):
        command = ["python", *command]
    if not command:
        raise PackageError("no_recipe", "`uv run` names nothing to run")
    if _find_in_environment(folder, "python") is None:
        found = f"`uv run` needs the environment of {folder}, and inside is no network to make it"
        raise PackageError("needs_software", f"{found}: run `uv sync` there")
    return tuple(command)


def _find_in_environment(folder: Path, name: str) -> Path | None:
    """A program of the folder's own Python environment."""
    places = [folder / one / "bin" / name for one in _ENVIRONMENTS]
    return next((place for place in places if os.path.lexists(place)), None)


def _find_python(name: str, toolchain: Toolchain) -> str:
    minor = name.removeprefix("python")
    if "." not in minor or toolchain.python_version.startswith(f"{minor}."):
        return str(toolchain.python)
    if minor in toolchain.pythons:
        return str(toolchain.pythons[minor])
    raise PackageError("needs_software", f"no {name} on this host: install it")


def _mount_program(path: Path, folder: Path) -> list[Mount]:
    """What a program at a path needs: its own file, or the environment and interpreter it is of."""
    within = path.is_relative_to(folder)
    if path.is_relative_to("/usr"):
        return []
    environment = path.parent.parent
    if not os.path.exists(environment / "pyvenv.cfg"):
        return [] if within else [Mount(path.resolve(), str(path))]
    program = (path.parent / "python").resolve()  # what the environment links to
    if not is_python(program, environment):
        found = f"{str(path.parent / 'python')!r:.200} leads to {str(program)!r:.200}"
        why = "which is no Python: make the environment anew"
        raise PackageError("needs_software", f"{found}, {why}")
    needed = list_python_files(program, program.parent.parent)
    mounts = [Mount.same(one) for one in needed if one.exists() and not one.is_relative_to("/usr")]
    # A version manager puts a link in between: `cpython-3.12` for `cpython-3.12.9`.
    link = Path(os.path.realpath(environment / "bin")) / "python"
    if link.is_symlink() and (first := Path(os.path.join(link.parent, os.readlink(link)))):
        prefix = first.parent.parent
        if prefix.is_symlink() and prefix.resolve() == program.parent.parent:
            mounts.append(Mount(prefix.resolve(), str(prefix)))
    return mounts if within else [Mount.same(environment), *mounts]
