"""The runtimes of this host, and the files each needs: never the folder that it happens to lie in.

`~/.local/bin/node` needs no `~/.local`, where its owner keeps much else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from assets.servers.sandbox.spec import is_private_folder

# Its own path rather than that of a version manager's shim, and the libraries it really loaded.
_ASK_NODE = (
    "const maps = () => { try { return require('fs').readFileSync('/proc/self/maps', 'utf8') }"
    " catch { return '' } }; JSON.stringify([process.execPath, process.versions.node, maps()])"
)
_OTHERS = ("site-packages", "dist-packages", "__pycache__")


@dataclass(frozen=True)
class Node:
    """The program, its version, and what of the host it needs."""

    program: Path
    version: str
    files: tuple[Path, ...]


def find_node() -> Node | None:
    """The Node.js on PATH, where it runs."""
    found = shutil.which("node")
    if not found:
        return None
    try:
        finished = subprocess.run(
            [found, "-p", _ASK_NODE], capture_output=True, text=True, timeout=20
        )
        path, version, maps = json.loads(finished.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    program = Path(path).resolve()
    libraries = sorted(set(re.findall(r"(/\S+\.so\b\S*)$", maps, re.MULTILINE)))
    named = [name for library in libraries for name in _list_names(Path(library))]
    headers = program.parent.parent / "include" / "node"
    return Node(program, version, (program, *named, headers))


def _list_names(library: Path) -> list[Path]:
    """A library under each name it has in its folder: it is asked for by that of a link."""
    if library.is_relative_to("/usr"):
        return []
    stem = library.name.partition(".so")[0]
    return [one for one in library.parent.glob(f"{stem}.so*") if one.resolve() == library.resolve()]


def find_npm(node: Path) -> Path | None:
    """npm's own entry `…/npm/bin/npm-cli.js`, behind PATH or beside Node; a wrapper is none."""
    found = shutil.which("npm")
    beside = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    for path in (Path(found).resolve() if found else beside, beside):
        if path.name == "npm-cli.js" and (path.parent.parent / "package.json").is_file():
            return path
    return None


def is_python(program: Path, environment: Path) -> bool:
    """Whether what an environment links to is an interpreter in its own prefix, which may be shown:
    who filled the environment could have led it to any folder of this host."""
    if program.is_relative_to(environment):
        return True
    named = program.name.startswith(("python", "pypy", "graalpy"))
    return named and program.is_file() and any(program.parent.parent.glob("lib*/py*3.*/os.py"))


def list_python_files(python: Path, prefix: Path) -> list[Path]:
    """What an interpreter needs: its prefix, where that is its alone, else its parts of it."""
    if not is_private_folder(prefix) and len(prefix.parts) > 2:  # not /opt as a whole either
        return [prefix]
    name = found[0] if (found := re.match(r"python3\.\d+", python.name)) else _get_default_name()
    parts = [python, prefix / "include" / name]
    for folder in (prefix / "lib", prefix / "lib64"):
        parts += folder.glob(f"lib{name}*.so*")
        parts += [one for one in (folder / name).glob("*") if one.name not in _OTHERS]
    return parts


def _get_default_name() -> str:
    return "python{}.{}".format(*sys.version_info[:2])


def find_other_pythons(usual: tuple[int, int]) -> dict[str, Path]:
    """The other supported interpreters of this host, each looked for where its installers put
    it."""
    home, found = Path.home(), {}
    uv_root = os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python")
    for number in range(10, 16):
        minor = f"3.{number}"
        places = [*Path(os.environ.get("PYENV_ROOT", home / ".pyenv")).glob(f"versions/{minor}.*")]
        places += Path(uv_root).glob(f"cpython-{minor}.*")
        paths = [place / "bin" / f"python{minor}" for place in sorted(places)]
        paths += [Path(f"/usr/local/bin/python{minor}"), Path(f"/usr/bin/python{minor}")]
        works = [path.resolve() for path in paths if path.is_file() and os.access(path, os.X_OK)]
        if works and (3, number) != usual:
            found[minor] = works[0]
    return found
