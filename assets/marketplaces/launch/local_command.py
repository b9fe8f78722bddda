"""Local commands: the folder or the image of this host that an entry of the user's files starts."""

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from assets.marketplaces.launch.command import parse_command
from assets.marketplaces.launch.mcp_config import read_launch_facts
from assets.marketplaces.launch.runners import FOLDER_OPTIONS, ParsedCommand
from assets.marketplaces.launch.variables import make_text
from assets.marketplaces.listing import LaunchFacts, PackageRef

_WORKSPACE = "${workspaceFolder}"  # as VS Code and Cursor call the folder that a file belongs to
_PROJECT = (
    *("pyproject.toml", "uv.lock", "setup.py", "requirements.txt", "package.json"),
    *("deno.json", "Cargo.toml", "go.mod", ".git"),
)
_HIGHEST = 2  # parts of the shortest path that is taken for a project: / and one folder


def read_local_entry(entry: Any, base: Path) -> dict[str, Any] | None:
    """{entry, directory} of an entry that starts a command of this host or a local image; None for
    any other. base: the folder that the entry's file belongs to; the entry that is returned names
    it where `${workspaceFolder}` stood. Looks for files, opens none."""
    resolved = _replace_workspace(entry, str(base))
    launch = _parse_entry(resolved)
    if launch is None or read_launch_facts(resolved).get("url"):
        return None
    if launch.package:
        return {"entry": resolved, "directory": None} if _is_local_image(launch.package) else None
    if not launch.local:
        return None
    cwd = resolved.get("cwd")
    words = (launch.command or "", *launch.args)
    directory = _find_directory(words, cwd if isinstance(cwd, str) and cwd else None, base)
    return {"entry": resolved, "directory": directory}


def read_local_facts(entry: Any, directory: str | None) -> dict[str, Any]:
    """The launch fields of a Listing of what `read_local_entry` returned."""
    facts = read_launch_facts(entry)
    launch = _parse_entry(entry)
    if launch is None or (launch.reason and not launch.local):
        return facts
    if directory:
        launch_facts = LaunchFacts(directory=directory)
    else:
        image = launch.args[-len(launch.own_args) - 1]
        launch_facts = LaunchFacts(own_args=launch.facts.own_args, entry=image)
    flags = set(facts["flags"]) - {"local_path", "unpinned"}
    ready = {
        "package": None,
        "launch": launch_facts,
        "runnable": True,
        "reason": None,
        "flags": flags,
    }
    return facts | ready


def _parse_entry(entry: Any) -> ParsedCommand | None:
    """What the entry's words start; None where it starts nothing here."""
    about = entry if isinstance(entry, Mapping) else {}
    command, args = about.get("command"), about.get("args") or []
    if not isinstance(command, str) or not isinstance(args, list):
        return None
    if not all(isinstance(arg, str | int | float) for arg in args):
        return None
    return parse_command(command, tuple(make_text(arg) for arg in args))


def _is_local_image(package: PackageRef) -> bool:
    """Whether no registry has it: Docker Hub keeps single words for images of its own, and none of
    them is a server of MCP."""
    name = package.identifier
    local = "/" not in name or name.startswith("localhost/")
    return package.type == "oci" and package.digest is None and local


def _replace_workspace(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        return value.replace(_WORKSPACE, folder)
    if isinstance(value, list):
        return [_replace_workspace(item, folder) for item in value]
    if isinstance(value, Mapping):
        return {key: _replace_workspace(one, folder) for key, one in value.items()}
    return value


def _find_directory(words: Sequence[str], cwd: str | None, base: Path) -> str:
    """What the entry says; else the project of the file or program that it names; else `base`."""
    named = cwd or next((b for a, b in pairwise(words) if a in FOLDER_OPTIONS), None)
    if named:
        return _normalise(base / os.path.expanduser(named))
    for word in (*words[1:], words[0]):
        path = Path(os.path.expanduser(word))  # `~1.2` is a word like any other
        if path.is_absolute() and os.path.isfile(path) and not path.is_relative_to("/usr"):
            return _normalise(_find_project(path))
    return _normalise(base)


def _find_project(file: Path) -> Path:
    """The nearest folder above a file that holds a project, below the user's home; else the file's
    own, or the one that an environment of Python lies in."""
    nearest = file.parent
    if os.path.exists(nearest.parent / "pyvenv.cfg"):
        nearest = nearest.parent.parent
    for folder in (nearest, *nearest.parents):
        if folder == Path.home() or len(folder.parts) <= _HIGHEST:
            break
        if any(os.path.exists(folder / name) for name in _PROJECT):
            return folder
    return nearest


def _normalise(folder: Path) -> str:
    """Without links on the way to it. A folder that is one itself stays one: where it leads may
    change, so it is refused when it is launched."""
    plain = os.path.normpath(folder)
    above, name = os.path.split(plain)
    return os.path.join(os.path.realpath(above), name)
