"""Data: a world from development data beside the checkout: real records of real marketplaces."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

from demo.world.record import DATES, Input, Package, Record, Remote

_KINDS = {"npm": "npm", "pypi": "pypi", "docker": "oci"}
_SECRET = re.compile(r"key|token|secret|password|credential|auth", re.IGNORECASE)


@cache
def load_records(folder: Path) -> list[Record]:
    """The records of a folder, each under a slug of its own. Raises ValueError where it does not
    hold the data."""
    servers = folder / "smithery" / "servers.jsonl"
    if not servers.is_file():
        raise ValueError(f"{folder}: found no smithery/servers.jsonl; expected the data folder")
    files = sorted(folder.glob("registry-seed/*.json"))
    seed = [one for path in files for one in json.loads(path.read_text(encoding="utf-8"))]
    by_repository = {_make_plain(one["repository"].get("url")): one for one in reversed(seed)}
    with servers.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    plain = [_make_plain(row["repository_url"]) for row in rows]
    found = [
        _read_smithery(*pair) for pair in zip(rows, map(by_repository.get, plain), strict=True)
    ]
    listed = set(plain)
    found += [
        _read_seed(one) for one in seed if _make_plain(one["repository"].get("url")) not in listed
    ]
    made: dict[str, Record] = {}
    for facts in found:
        slug = facts["slug"]
        names = (slug, f"{slug}-{facts['namespace'].lower()}", f"{slug}-{len(made)}")
        facts["slug"] = next((name for name in names if name not in made), names[-1])
        made[facts["slug"]] = Record(**facts)
    return list(made.values())


def _read_smithery(row: dict[str, Any], seed: dict[str, Any] | None) -> dict[str, Any]:
    """A record of Smithery's; its package where the registry knows the repository."""
    owner, slash, name = row["qualified_name"].removeprefix("@").rpartition("/")
    facts = _make_base(name, owner if slash else "smithery", row["overview"], row["repository_url"])
    package = _make_package(seed) if seed else None
    gateway = f"https://server.smithery.ai/{row['qualified_name']}/mcp"
    return facts | {
        "title": row["display_name"],
        "version": package.version if package else "1.0.0",
        "package": package,
        "remote": None if package else Remote(gateway, auth="api_key"),
        "inputs": tuple(_make_input(one) for one in row["configuration_requirements"]),
        "tools": tuple(tool["name"] for tool in row["tools"]),
        "tags": tuple(row["tags"][:3]) or ("other",),
    }


def _read_seed(one: dict[str, Any]) -> dict[str, Any]:
    owner, _, name = one["name"].removeprefix("io.github.").rpartition("/")
    package, remotes = _make_package(one), one.get("remotes") or []
    facts = _make_base(name, owner or "unknown", one["description"], one["repository"].get("url"))
    variables = [
        v for p in (one.get("packages") or [])[:1] for v in p.get("environment_variables", [])
    ]
    return facts | {
        "title": name,
        "version": package.version if package else "1.0.0",
        "package": package,
        "remote": Remote(remotes[0]["url"]) if remotes and not package else None,
        "inputs": tuple(_make_input(variable) for variable in variables),
        "tags": ("registry",),
    }


def _make_base(name: str, owner: str, description: str, repository: str | None) -> dict[str, Any]:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "server"
    dice = crc32(f"{owner}/{name}".encode())
    return {
        "slug": slug,
        "namespace": re.sub(r"[^A-Za-z0-9_.-]+", "-", owner),
        "description": description,
        "repository": repository or None,
        "created_at": f"2025-{dice % 12 + 1:02}-{dice % 28 + 1:02}T08:00:00Z",
        "revised_at": f"2026-{dice % 10 + 1:02}-{dice % 27 + 1:02}T09:{dice % 60:02}:00Z",
        "schema": DATES[dice % len(DATES)],
    }


def _make_package(one: dict[str, Any]) -> Package | None:
    for package in one.get("packages") or []:
        kind = _KINDS.get(package.get("registry_name"))
        if kind and package.get("name") and package.get("version"):
            return Package(kind, package["name"], package["version"])  # type: ignore[arg-type]
    return None


def _make_input(one: dict[str, Any]) -> Input:
    name = one["name"]
    required = bool(one.get("required"))
    return Input(name, one.get("description") or "", required, bool(_SECRET.search(name)))


def _make_plain(url: str | None) -> str:
    return (url or "").lower().removesuffix("/").removesuffix(".git")
