"""MCPB bundles: a zip with a manifest that says how to start the server in it."""

import json
import re
from pathlib import Path, PurePosixPath
from typing import Any

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.placeholders import make_value
from warehouse.storage.untrusted_files import UnreadableFile, read_file

SERVER = "/srv/server"  # where an artefact is seen inside the sandbox
_MAX_BYTES = 1 << 20
_PLACE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def read_command(folder: Path, python: str, node: str | None) -> dict[str, Any]:
    """{argv, env, placeholders} of an unpacked bundle, seen from inside the sandbox.

    What the manifest asks of its user becomes typed placeholders. Raises PackageError.
    """
    manifest = _read_manifest(folder)
    server = manifest.get("server")
    if not isinstance(server, dict):
        raise PackageError("build_failed", "manifest.json has no `server`")
    found = server.get("mcp_config")
    config: dict[str, Any] = found if isinstance(found, dict) else {}
    command, args = config.get("command"), config.get("args")
    if not command:
        command = {"python": "python", "node": "node"}.get(str(server.get("type")), "")
        args = [f"${{__dirname}}/{server.get('entry_point')}"]
    if not isinstance(command, str) or not isinstance(args or [], list):
        raise PackageError(
            "build_failed", "manifest.json: mcp_config.command is no string or args no list"
        )
    values, made_up = _user_values(manifest.get("user_config"))
    words = [_fill_text(str(word), values) for word in [command, *(args or [])]]
    env = {
        str(name): _fill_text(str(value), values)
        for name, value in (config.get("env") or {}).items()
        if re.fullmatch(r"[A-Za-z_]\w*", str(name))
    }
    return {
        "argv": [_choose_program(words[0], python, node), *words[1:]],
        "env": env,
        "placeholders": made_up,
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(read_file(folder, "manifest.json", _MAX_BYTES))
    except (UnreadableFile, ValueError, RecursionError) as error:
        raise PackageError("build_failed", f"no readable manifest.json: {error}") from error
    if not isinstance(manifest, dict):
        raise PackageError("build_failed", "manifest.json is not an object")
    return manifest


def _user_values(config: Any) -> tuple[dict[str, str], list[str]]:
    """What `${user_config.NAME}` stands for: the manifest's default or a typed placeholder."""
    values: dict[str, str] = {}
    made_up: list[str] = []
    for name, about in (config or {}).items() if isinstance(config, dict) else ():
        about = about if isinstance(about, dict) else {}
        default = about.get("default")
        if isinstance(default, str | int | float | bool):
            text = str(default).lower() if isinstance(default, bool) else str(default)
            values[f"user_config.{name}"] = text
        elif about.get("required") or about.get("sensitive"):
            kind = str(about.get("type") or "string")
            wanted = f"{about.get('title') or ''} {about.get('description') or ''}"
            values[f"user_config.{name}"] = make_value(str(name), wanted, kind)
            made_up.append(f"user_config:{name}")
    return values, sorted(made_up)


def _fill_text(text: str, values: dict[str, str]) -> str:
    known = {**values, "__dirname": SERVER, "HOME": "/home/user", "/": "/"}
    return _PLACE.sub(lambda place: known.get(place[1], ""), text)


def _choose_program(word: str, python: str, node: str | None) -> str:
    if word in ("python", "python3"):
        return python
    if word == "node":
        if node is None:
            raise PackageError("build_failed", "it needs Node.js, which is not on this host")
        return node
    path = word if word.startswith(SERVER) else f"{SERVER}/{word.removeprefix('./')}"
    if ".." in PurePosixPath(path).parts:
        raise PackageError("build_failed", f"the command {word[:80]!r} points out of the bundle")
    return path
