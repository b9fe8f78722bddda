"""Reads: which environment variables a server's own source reads."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from assets.servers.recipes.placeholders import holds_secret, split_words
from assets.servers.recipes.recipe import Recipe

_MAX_FILES, _MAX_BYTES = 300, 8 << 20
_MAX_NAMES = 40
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
        try:
            text = path.read_text("utf-8", "replace") if path.stat().st_size < _MAX_BYTES else ""
        except OSError:
            continue
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


def _iter_sources(tree: Path, recipe: Recipe) -> Iterator[Path]:
    if recipe.ecosystem == "npm":
        yield from _iter_package_files(tree / "node_modules" / recipe.name, (".js", ".mjs", ".cjs"))
        return
    for packages in tree.glob("venv/lib/python*/site-packages"):
        stem = recipe.name.replace("-", "_").lower()
        for record in packages.glob("*.dist-info/RECORD"):
            if record.parent.name.rpartition("-")[0].lower().replace("-", "_") == stem or (
                record.parent.name.lower().replace("-", "_").startswith(f"{stem}_")
            ):
                listed = record.read_text("utf-8", "replace").splitlines()
                names = [line.partition(",")[0] for line in listed]
                inside = [one for one in names if one.endswith(".py") and ".." not in one]
                yield from (packages / one for one in inside[:_MAX_FILES])


def _iter_package_files(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """Files of a package itself, not of what is installed below it."""
    count = 0
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if one not in ("node_modules", ".git"))
        for name in sorted(names):
            if name.endswith(endings) and count < _MAX_FILES:
                count += 1
                yield Path(root, name)
