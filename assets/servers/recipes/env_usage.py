"""Reads: which environment variables a server's own source reads."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from assets.servers.recipes.placeholders import holds_secret, split_words
from assets.servers.recipes.recipe import Recipe
from warehouse.storage.untrusted_files import UnreadableFile, list_files, match_paths, read_file

_MAX_FILES, _MAX_BYTES = 300, 8 << 20
_MAX_NAMES = 40
_SCRIPTS = (".js", ".mjs", ".cjs")
_NAME = r"([A-Z][A-Z0-9]*_?[A-Z0-9_]*)"
_READ = re.compile(
    rf"process\.env\.{_NAME}\b|process\.env\[['\"]{_NAME}['\"]\]"
    rf"|os\.getenv\(\s*['\"]{_NAME}['\"]|os\.environ(?:\.get\(|\[)\s*['\"]{_NAME}['\"]"
    rf"|\benviron\[['\"]{_NAME}['\"]\]"
)
# What decides how a server behaves, or belongs to a library bundled with it, is left alone.
_LEFT = re.compile(
    r"^(NODE|NPM|DEBUG|LOG|CI|TERM|HOME|PATH|PWD|USER|SHELL|TMP|TEMP|PYTHON|VIRTUAL|XDG|HTTP|HTTPS"
    r"|NO_PROXY|WS_NO|FORCE_COLOR|NO_COLOR|JEST|VITEST|TEST|AWS_LAMBDA|LAMBDA|K_|GAE|GCE|WEBPACK"
    r"|FASTMCP|MCP_(LOG|TRANSPORT|PORT|HOST)|PORT|HOST)(_|$)"
)
_WANTED = (
    r"\bur[il]s?\b|host|user|e-?mail|\bids?\b|domain|instance|project|org|account|region|endpoint"
    r"|database|\bdb\b|path|\bdirs?\b|director|workspace|site|server|name|team|tenant|connection"
)


def find_variables(tree: Path, recipe: Recipe) -> tuple[str, ...]:
    """Names of credentials and addresses that the package's own files read, sorted."""
    found: set[str] = set()
    size = 0
    for path in _iter_sources(tree, recipe):
        text = _read_source(tree, path)
        size += len(text)
        for groups in _READ.findall(text):
            name = next(group for group in groups if group)
            if not _LEFT.search(name) and (
                holds_secret(name) or re.search(_WANTED, split_words(name))
            ):
                found.add(name)
        if size > _MAX_BYTES:
            break
    return tuple(sorted(found)[:_MAX_NAMES])


def _read_source(tree: Path, path: Path) -> str:
    """Its text; none where it is no plain file of the tree, or a very large one."""
    try:
        return read_file(tree, path, _MAX_BYTES).decode("utf-8", "replace")
    except UnreadableFile:
        return ""


def _iter_sources(tree: Path, recipe: Recipe) -> Iterator[Path]:
    """Files of the package, as paths in the tree."""
    if recipe.ecosystem == "npm":
        yield from _iter_package_files(tree, Path("node_modules", recipe.name))
        return
    for packages in match_paths(tree, "venv/lib/python*/site-packages"):
        stem = recipe.name.replace("-", "_").lower()
        for record in match_paths(tree, f"{packages}/*.dist-info/RECORD"):
            if record.parent.name.rpartition("-")[0].lower().replace("-", "_") == stem or (
                record.parent.name.lower().replace("-", "_").startswith(f"{stem}_")
            ):
                listed = _read_source(tree, record).splitlines()
                names = [line.partition(",")[0] for line in listed]
                inside = [name for name in names if name.endswith(".py") and ".." not in name]
                yield from (packages / one for one in inside[:_MAX_FILES])


def _iter_package_files(tree: Path, folder: Path) -> Iterator[Path]:
    """Files of a package itself, not of what is installed below it."""
    files = list_files(tree, folder, skip=("node_modules", ".git"))
    try:
        yield from islice((path for path in files if path.suffix in _SCRIPTS), _MAX_FILES)
    except UnreadableFile:
        return
