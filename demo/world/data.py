"""Data: a world from development data beside the checkout: real records of real marketplaces."""

import json
import re
from pathlib import Path
from typing import Any
from zlib import crc32

from demo.world.record import DATES, Input, Package, Record, Remote

_KINDS = {"npm": "npm", "pypi": "pypi", "docker": "oci"}
_SECRET = re.compile(r"key|token|secret|password|credential|auth", re.IGNORECASE)


class Data:
    """The records of a folder. Raises ValueError where it does not hold the data."""

    def __init__(self, folder: Path) -> None:
        servers = folder / "smithery" / "servers.jsonl"
        if not servers.is_file():
            raise ValueError(f"{folder}: found no smithery/servers.jsonl; expected the data folder")
        files = sorted(folder.glob("registry-seed/*.json"))
        seed = [one for path in files for one in json.loads(path.read_text(encoding="utf-8"))]
        by_repository = {_make_plain(one["repository"].get("url")): one for one in reversed(seed)}
        self._records: list[Record] = []
        self._positions: dict[str, int] = {}
        listed = set()
        with servers.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                plain = _make_plain(row["repository_url"])
                listed.add(plain)
                self._add(_read_smithery(row, by_repository.get(plain)))
        for one in seed:
            if _make_plain(one["repository"].get("url")) not in listed:
                self._add(_read_seed(one))

    @property
    def size(self) -> int:
        return len(self._records)

    def record(self, index: int) -> Record:
        return self._records[index]

    def index(self, slug: str) -> int | None:
        return self._positions.get(slug)

    def find_revised_at(self, index: int) -> str:
        return self._records[index].revised_at

    def _add(self, facts: dict[str, Any]) -> None:
        slug = facts["slug"]
        for other in (slug, f"{slug}-{facts['namespace'].lower()}"):
            if other not in self._positions:
                break
        else:
            other = f"{slug}-{len(self._records)}"
        self._positions[other] = len(self._records)
        facts["slug"] = other
        self._records.append(Record(**facts))


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
