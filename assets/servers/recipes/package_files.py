"""Files of an installed package: bundle manifest and licence."""

import json
import re
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ValidationError

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.placeholders import make_value
from assets.servers.recipes.recipe import LaunchRecipe
from warehouse.patterns import Match, compile_pattern
from warehouse.storage.untrusted_files import UnreadableFile, match_paths, open_file, read_file

SERVER = "/srv/server"  # where an artefact is seen inside the sandbox
_MAX_BYTES = 1 << 20
_PLACE = compile_pattern(r"\$\{([A-Za-z_][\w.]*)\}")


class _BundleCommand(BaseModel):
    command: str | None = None
    args: list[str | int | float] | None = None
    env: dict[str, str | int | float] | None = None


class _BundleServer(BaseModel):
    type: str | None = None
    entry_point: str | None = None
    mcp_config: _BundleCommand | None = None


class _BundleManifest(BaseModel):
    """What we read of a manifest; the rest of it is not looked at."""

    server: _BundleServer
    user_config: dict[str, dict[str, Any]] | None = None


def read_command(folder: Path, python: str, node: str | None) -> dict[str, Any]:
    """{argv, env, placeholders} of an unpacked bundle, seen from inside the sandbox.

    What the manifest asks of its user becomes typed placeholders. Raises PackageError.
    """
    manifest = _read_manifest(folder)
    server, config = manifest.server, manifest.server.mcp_config or _BundleCommand()
    command, args = config.command, config.args or []
    if not command:
        command = {"python": "python", "node": "node"}.get(server.type or "", "")
        args = [f"${{__dirname}}/{server.entry_point}"]
    values, made_up = _fill_user_values(manifest.user_config or {})
    fill = _TemplateFiller(values)
    words = [fill(str(word)) for word in [command, *args]]
    env = {
        name: fill(str(value))
        for name, value in (config.env or {}).items()
        if re.fullmatch(r"[A-Za-z_]\w*", name)
    }
    return {
        "argv": [_choose_program(words[0], python, node), *words[1:]],
        "env": env,
        "placeholders": made_up,
    }


def _read_manifest(folder: Path) -> _BundleManifest:
    try:
        manifest = json.loads(read_file(folder, "manifest.json", _MAX_BYTES))
    except (UnreadableFile, ValueError, RecursionError) as error:
        raise PackageError("build_failed", f"no readable manifest.json: {error}") from error
    try:
        return _BundleManifest.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        # Of a union each member complains: the field stands before the member's name.
        field = ".".join(str(part) for part in first["loc"] if part not in ("str", "int", "float"))
        field_name = ascii(field)[1:-1][:120] or "all of it"
        raise PackageError("no_recipe", f"manifest.json: {field_name}: {first['msg']}") from None


def _fill_user_values(config: dict[str, dict[str, Any]]) -> tuple[dict[str, str], list[str]]:
    """What `${user_config.NAME}` stands for: the manifest's default or a typed placeholder."""
    values: dict[str, str] = {}
    made_up: list[str] = []
    for name, about in config.items():
        default = about.get("default")
        if isinstance(default, str | int | float | bool):
            text = str(default).lower() if isinstance(default, bool) else str(default)
            values[f"user_config.{name}"] = text
        elif about.get("required") or about.get("sensitive"):
            kind = str(about.get("type") or "string")
            description = f"{about.get('title') or ''} {about.get('description') or ''}"
            values[f"user_config.{name}"] = make_value(name, description, kind)
            made_up.append(f"user_config:{name}")
    return values, sorted(made_up)


class _TemplateFiller:
    """Puts values in their places; all that they fill is bounded, or a default of 1 MB that is
    named a thousand times would be 1 GB."""

    def __init__(self, values: dict[str, str]) -> None:
        self._known = {**values, "__dirname": SERVER, "HOME": "/home/user", "/": "/"}
        self._left = _MAX_BYTES

    def __call__(self, text: str) -> str:
        return _PLACE.sub(self._take, text)

    def _take(self, place: Match) -> str:
        value = self._known.get(place[1], "")
        self._left -= len(value)
        if self._left < 0:
            detail = f"manifest.json: its values fill more than {_MAX_BYTES:,} characters"
            raise PackageError("no_recipe", detail)
        return value


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


_MAX_BYTES_LICENCE = 1_000_000
_LONGEST = 120  # characters; a longer one is a licence's text, not its name
_CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(.+)")


def read_licence(recipe: LaunchRecipe, tree: Path) -> str | None:
    """The licence's name (an SPDX expression where its author wrote one), or None."""
    if recipe.ecosystem == "npm":
        licence = _read_json_file(tree, f"node_modules/{recipe.name}/package.json").get("license")
    elif recipe.ecosystem == "mcpb":
        licence = _read_json_file(tree, "manifest.json").get("license")
    elif recipe.ecosystem == "pypi":
        return _find_first(_read_distribution(tree, canonicalize_name(recipe.name)))
    else:
        return None
    # A mapping is npm's older form.
    return _find_first([licence.get("type") if isinstance(licence, dict) else licence])


def _read_distribution(tree: Path, name: str) -> Iterable[Any]:
    for folder in match_paths(tree, "venv/lib/python*/site-packages/*.dist-info"):
        if canonicalize_name(folder.name.split("-")[0]) != name:
            continue
        headers = HeaderParser().parsestr(_read_text_file(tree, folder / "METADATA"))
        yield headers["License-Expression"]
        yield headers["License"]
        for line in headers.get_all("Classifier") or ():
            match = _CLASSIFIER.fullmatch(str(line).strip())
            yield match and match[1]


def _find_first(candidates: Iterable[Any]) -> str | None:
    for candidate in candidates:
        name = " ".join(candidate.split()) if isinstance(candidate, str) else ""
        if 0 < len(name) <= _LONGEST and name.isprintable():
            return name
    return None


def _read_json_file(tree: Path, path: str) -> dict[str, Any]:
    try:
        value = json.loads(_read_text_file(tree, path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_text_file(tree: Path, path: str | Path) -> str:
    try:
        with open_file(tree, path) as file:
            return file.read(_MAX_BYTES_LICENCE).decode("utf-8", "replace")
    except UnreadableFile:
        return ""
