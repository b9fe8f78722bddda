"""The host's runtimes that servers are fetched and run with, and how the sandbox sees them."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from assets.servers.sandbox.spec import is_private_folder
from warehouse.patterns import compile_pattern

# Its own path rather than that of a version manager's shim, and the libraries it really loaded.
_ASK_NODE = (
    "const maps = () => { try { return require('fs').readFileSync('/proc/self/maps', 'utf8') }"
    " catch { return '' } }; JSON.stringify([process.execPath, process.versions.node, maps()])"
)
_OTHERS = ("site-packages", "dist-packages", "__pycache__")


@dataclass(frozen=True)
class NodeRuntime:
    """The program, its version, and what of the host it needs."""

    program: Path
    version: str
    files: tuple[Path, ...]


def find_node() -> NodeRuntime | None:
    """The Node.js on PATH, where it runs."""
    program_name = shutil.which("node")
    if not program_name:
        return None
    try:
        finished = subprocess.run(
            [program_name, "-p", _ASK_NODE], capture_output=True, text=True, timeout=20
        )
        path, version, maps = json.loads(finished.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    program = Path(path).resolve()
    libraries = sorted(set(compile_pattern(r"(?m)(/\S+\.so\b\S*)$").findall(maps)))
    # A library under each name it has in its folder: it is asked for by that of a link.
    names = [
        path
        for library in map(Path, libraries)
        if not library.is_relative_to("/usr")
        for path in library.parent.glob(f"{library.name.partition('.so')[0]}.so*")
        if path.resolve() == library.resolve()
    ]
    headers = program.parent.parent / "include" / "node"
    return NodeRuntime(program, version, (program, *names, headers))


def find_npm(node: Path) -> Path | None:
    """npm's own entry `…/npm/bin/npm-cli.js`, behind PATH or beside Node; a wrapper is none."""
    program = shutil.which("npm")
    beside = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    for path in (Path(program).resolve() if program else beside, beside):
        if path.name == "npm-cli.js" and (path.parent.parent / "package.json").is_file():
            return path
    return None


def is_python(program: Path, environment: Path) -> bool:
    """Whether what an environment links to is an interpreter in its own prefix, which may be shown:
    who filled the environment could have led it to any folder of this host."""
    if program.is_relative_to(environment):
        return True
    is_interpreter = program.name.startswith(("python", "pypy", "graalpy"))
    return (
        is_interpreter
        and program.is_file()
        and any(program.parent.parent.glob("lib*/py*3.*/os.py"))
    )


def list_python_files(python: Path, prefix: Path) -> list[Path]:
    """What an interpreter needs: its prefix, where that is its alone, else its parts of it."""
    if not is_private_folder(prefix) and len(prefix.parts) > 2:  # not /opt as a whole either
        return [prefix]
    match = re.match(r"python3\.\d+", python.name)
    name = match[0] if match else "python{}.{}".format(*sys.version_info[:2])
    files = [python, prefix / "include" / name]
    for folder in (prefix / "lib", prefix / "lib64"):
        files += folder.glob(f"lib{name}*.so*")
        files += [path for path in (folder / name).glob("*") if path.name not in _OTHERS]
    return files


def find_other_pythons(usual: tuple[int, int]) -> dict[str, Path]:
    """The other supported interpreters of this host, each looked for where its installers put
    it."""
    home, others = Path.home(), {}
    uv_root = os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python")
    for number in range(10, 16):
        minor = f"3.{number}"
        places = [*Path(os.environ.get("PYENV_ROOT", home / ".pyenv")).glob(f"versions/{minor}.*")]
        places += Path(uv_root).glob(f"cpython-{minor}.*")
        paths = [place / "bin" / f"python{minor}" for place in sorted(places)]
        paths += [Path(f"/usr/local/bin/python{minor}"), Path(f"/usr/bin/python{minor}")]
        works = [path.resolve() for path in paths if path.is_file() and os.access(path, os.X_OK)]
        if works and (3, number) != usual:
            others[minor] = works[0]
    return others


_CERTIFICATE_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"),
    *("NODE_EXTRA_CA_CERTS", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS"),
)
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_NPM_SETTINGS = ("registry", "cafile", "strict-ssl", "proxy", "https-proxy", "noproxy")
_UV_SETTINGS = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX")


class ToolMissing(RuntimeError):
    """A runtime the servers need is not on this host; the message says how to get it."""


@dataclass(frozen=True)
class HostToolchain:
    """Paths on the host, versions, and settings for the fetch phase.

    binds: host files and folders that a sandbox binds read-only at their own path (outside /usr).
    pythons: other interpreters by minor version, for servers that this one is too old or too new
    for. fetch_env: environment of the fetch phase. fetch_binds: certificates and local indexes.
    """

    python: Path
    python_version: str
    uv: Path
    node: Path | None = None
    node_version: str | None = None
    npm: Path | None = None
    binds: tuple[Path, ...] = ()
    fetch_env: Mapping[str, str] = field(default_factory=dict)
    fetch_binds: tuple[Path, ...] = ()
    pythons: Mapping[str, Path] = field(default_factory=dict)

    def identity(self, ecosystem: str, python: str | None = None) -> dict[str, str]:
        """What of the host an installed artefact depends on. python: as in Recipe."""
        if ecosystem == "npm":
            return {"node": (self.node_version or "").split(".")[0]}
        if python is not None:
            return {"python": str(self.python_for(python)), "version": python}
        return {"python": str(self.python), "version": self.python_version}

    def python_for(self, minor: str | None) -> Path:
        """The interpreter of a minor version ("3.12"), the usual one for None; or ToolMissing."""
        usual = minor is None or self.python_version.startswith(f"{minor}.")
        python = self.python if usual else self.pythons.get(str(minor))
        if python is None:
            have = ", ".join([self.python_version, *sorted(self.pythons)])
            raise ToolMissing(f"it needs Python {minor}, this host has {have}: install it beside")
        return python

    def require_node(self) -> tuple[Path, Path]:
        """(node, npm), or ToolMissing."""
        if self.node is None or self.npm is None:
            raise ToolMissing(
                "no `node` and `npm` on PATH; npm servers need Node.js 20 or later: install it"
                " (Debian: apt-get install nodejs npm), then run again"
            )
        return self.node, self.npm


def find_python() -> tuple[Path, tuple[Path, ...]]:
    """This Python, and what a sandbox binds of it outside /usr."""
    # Not `sys.executable`: in an environment made of copies that is a file no sandbox shows.
    python = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    prefix = Path(os.path.realpath(sys.base_prefix))
    return python, _keep_outside_usr(list_python_files(python, prefix))


@lru_cache(maxsize=1)
def find_toolchain() -> HostToolchain:
    """The runtimes of this host; a missing Node is a fact of the result, not an error."""
    from uv import find_uv_bin

    python, own_files = find_python()
    uv = Path(find_uv_bin()).resolve()
    node = find_node()
    npm = find_npm(node.program) if node else None
    pythons = find_other_pythons(sys.version_info[:2])
    binds = [*own_files]
    for path in pythons.values():
        binds += list_python_files(path, path.parent.parent)
    if node and npm:
        binds += [*node.files, npm.parent.parent]
    env, fetch_binds = _read_fetch_settings(npm)
    return HostToolchain(
        python=python,
        python_version=".".join(map(str, sys.version_info[:3])),
        uv=uv,
        node=node.program if node else None,
        node_version=node.version if node else None,
        npm=npm,
        binds=_keep_outside_usr(binds),
        fetch_env=env,
        fetch_binds=_keep_outside_usr([uv, *fetch_binds]),
        pythons=pythons,
    )


def _keep_outside_usr(paths: list[Path]) -> tuple[Path, ...]:
    """Existing paths that the sandbox does not show anyway, parents swallowing their children; none
    that holds more than a tool."""
    outside: list[Path] = []
    for path in sorted({p for p in paths if p.exists()}, key=lambda p: len(p.parts)):
        if path.is_relative_to("/usr") or is_private_folder(path):
            continue
        if not any(path.is_relative_to(parent) for parent in outside):
            outside.append(path)
    return tuple(outside)


def _read_fetch_settings(npm: Path | None) -> tuple[dict[str, str], list[Path]]:
    """(environment, host paths it refers to) of the fetch phase."""
    env = {name: os.environ[name] for name in _CERTIFICATE_VARIABLES if os.environ.get(name)}
    for name in _PROXY_VARIABLES:
        for spelling in (name, name.lower()):
            if os.environ.get(spelling):
                env[spelling] = _drop_credentials(os.environ[spelling])
    settings = {k: _drop_credentials(os.environ[k]) for k in _UV_SETTINGS if os.environ.get(k)}
    pip = _read_pip_settings()
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
    }
    for option, variable in names.items():
        if option in pip and variable not in settings:
            joiner = "," if variable == "UV_FIND_LINKS" else " "
            words = [_drop_credentials(word) for word in pip[option].split()]
            settings[variable] = joiner.join(words)
    if "cert" in pip:
        settings.setdefault("SSL_CERT_FILE", pip["cert"])
    if settings.get("UV_INDEX"):
        settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip's rule: the best of all indexes
    env.update(settings)
    if npm:
        env.update(_read_npm_settings(npm))
    paths = [Path(v) for k, v in env.items() if v.startswith("/") and "INDEX" not in k]
    for value in env.values():
        for word in re.split(r"[\s,]+", value):
            if word.startswith("file:///"):
                # An index names its files relative to itself: `../../files/…` must be there too.
                index = Path(urlsplit(word).path)
                paths.append(index if is_private_folder(index.parent) else index.parent)
    return env, paths


def _read_pip_settings() -> dict[str, str]:
    settings: dict[str, str] = {}
    files = [Path("/etc/pip.conf"), Path.home() / ".pip/pip.conf"]
    files += [Path.home() / ".config/pip/pip.conf", Path(sys.prefix) / "pip.conf"]
    if os.environ.get("PIP_CONFIG_FILE"):
        files.append(Path(os.environ["PIP_CONFIG_FILE"]))
    for file in files:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(file)
        except configparser.Error:
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update(parser.items(section))
    for option in ("index-url", "extra-index-url", "find-links", "cert"):
        value = os.environ.get("PIP_" + option.upper().replace("-", "_"))
        if value:
            settings[option] = value
    return settings


def _read_npm_settings(npm: Path) -> dict[str, str]:
    """npm's settings that decide where packages come from, as `npm_config_*` variables."""
    answer = subprocess.run(
        ["npm", "config", "list", "--json"], capture_output=True, text=True, timeout=60
    )
    try:
        config = json.loads(answer.stdout)
    except ValueError:
        return {}
    settings = {}
    for name in _NPM_SETTINGS:
        value = config.get(name)
        variable = f"npm_config_{name.replace('-', '_')}"
        if isinstance(value, str) and value:
            settings[variable] = _drop_credentials(value)
        elif name == "strict-ssl" and value is False:
            settings[variable] = "false"
    return settings


def _drop_credentials(text: str) -> str:
    """`scheme://user:password@host` loses the user and the password."""
    return compile_pattern(r"://[^/@\s]+@").sub("://", text)
