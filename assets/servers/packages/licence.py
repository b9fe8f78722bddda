"""Under which licence a package says it stands, read from the installed package itself.

The files are untrusted: they are read with a cap, and only where they really lie in its tree.
"""

import json
import re
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from assets.servers.recipes.recipe import Recipe
from warehouse.storage.untrusted_files import UnreadableFile, match_paths, open_file

_MAX_BYTES = 1_000_000
_LONGEST = 120  # characters; a longer one is a licence's text, not its name
_CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(.+)")


def read_licence(recipe: Recipe, tree: Path) -> str | None:
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
            found = _CLASSIFIER.fullmatch(str(line).strip())
            yield found and found[1]


def _find_first(candidates: Iterable[Any]) -> str | None:
    for candidate in candidates:
        name = " ".join(candidate.split()) if isinstance(candidate, str) else ""
        if 0 < len(name) <= _LONGEST and name.isprintable():
            return name
    return None


def _read_json_file(tree: Path, path: str) -> dict[str, Any]:
    try:
        found = json.loads(_read_text_file(tree, path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_text_file(tree: Path, path: str | Path) -> str:
    try:
        with open_file(tree, path) as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except UnreadableFile:
        return ""
