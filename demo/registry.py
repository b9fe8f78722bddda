"""Registry: the replica of the official registry's `/v0.1/servers`.

What belongs here: server.json records in the five dated schemas, paging, versions, deletion.
What does not: which servers there are (`catalogue.py`). It shares no code with the adapter.
"""

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from demo.catalogue import SERVERS, Server, World, gone
from demo.faults import cut, interstitial

PAGE = 5  # records a page at most, so that a small world still has pages
DATES = ("2025-07-09", "2025-09-16", "2025-09-29", "2025-10-17", "2025-12-11")
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_HINTS = {"npm": "npx", "pypi": "uvx"}


class Registry:
    """Routes of the replica over a world that may change between requests."""

    def __init__(self, world: Callable[[], World], fault: Callable[[], str | None]) -> None:
        self.world, self.fault = world, fault

    def routes(self) -> list[Route]:
        return [
            Route(f"/{api}/servers{path}", handler)
            for api in ("v0.1", "v0")
            for path, handler in (
                ("", self.list_servers),
                ("/{name:path}/versions/{version}", self.one_version),
                ("/{name:path}/versions", self.list_versions),
            )
        ]

    def list_servers(self, request: Request) -> Response:
        query = request.query_params
        if self.fault() == "html":
            return interstitial()
        limit = query.get("limit", "30")
        if not limit.isdigit() or not 1 <= int(limit) <= 100:
            return JSONResponse({"title": "Unprocessable Entity", "status": 422}, 422)
        records = [] if self.fault() == "empty" else self._matching(query)
        keys = [_cursor(record) for record in records]
        after = query.get("cursor")
        start = keys.index(after) + 1 if after in keys else 0
        page = records[start : start + min(int(limit), PAGE)]
        last = start + len(page) >= len(records)
        metadata: dict[str, Any] = {"count": len(page)}
        if not last:
            metadata["nextCursor"] = _cursor(page[-1])
        response = JSONResponse({"servers": page, "metadata": metadata})
        return cut(response) if last and self.fault() == "truncated" else response

    def list_versions(self, request: Request) -> Response:
        found = self._named(request.path_params["name"])
        if not found:
            return JSONResponse({"error": "Server not found"}, 404)
        return JSONResponse({"servers": found, "metadata": {"count": len(found)}})

    def one_version(self, request: Request) -> Response:
        wanted = request.path_params["version"]
        for record in self._named(request.path_params["name"]):
            latest = record["_meta"][_OFFICIAL]["isLatest"]
            if record["server"]["version"] == wanted or (wanted == "latest" and latest):
                return JSONResponse(record)
        return JSONResponse({"error": "Server not found"}, 404)

    def _matching(self, query: Any) -> list[dict[str, Any]]:
        since, wanted = query.get("updated_since"), query.get("version")
        records = self._records(deleted=bool(since) or query.get("include_deleted") == "true")
        return [
            record
            for record in records
            if (not wanted or _is_version(record, wanted))
            and (not since or record["_meta"][_OFFICIAL]["updatedAt"] >= since)
            and query.get("search", "").lower() in record["server"]["name"].lower()
        ]

    def _named(self, name: str) -> list[dict[str, Any]]:
        records = self._records(deleted=True)
        return [record for record in records if record["server"]["name"] == name]

    def _records(self, deleted: bool = False) -> list[dict[str, Any]]:
        """Every version of every server, the oldest first within a name."""
        world = self.world()
        records = []
        for server in world.listed("registry"):
            days = [day for day in sorted(server.versions) if day <= world.day]
            for day in days:
                records.append(_record(world, server, day, latest=day == days[-1]))
        if deleted:
            for server in gone(world.day, world.scale):
                if "registry" in server.on:
                    records.append(_record(world, server, 1, latest=True, status="deleted"))
        twice = next((r for r in records if r["server"]["name"].endswith("/units")), None)
        return records + ([twice] if twice else [])  # an id that comes twice, as real lists have


def _record(
    world: World, server: Server, day: int, *, latest: bool, status: str = "active"
) -> dict[str, Any]:
    updated = server.revised_at(day if not latest else world.day, world.scale)
    date = DATES[SERVERS.index(server) % len(DATES)]  # old records keep their old schema
    body = _server_json(world, server, server.versions.get(day, server.version(day)), date)
    official = {"status": status, "publishedAt": updated, "updatedAt": updated, "isLatest": latest}
    return {"server": body, "_meta": {_OFFICIAL: official}}


def _server_json(world: World, server: Server, version: str, date: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "$schema": f"https://static.modelcontextprotocol.io/schemas/{date}/server.schema.json",
        "name": server.registry_name,
        "description": server.description,
        "repository": {"url": server.repository, "source": "github"},
        "version": version,
        "packages": [_package(world, server, version)],
    }
    if date >= "2025-10-17":
        body["title"] = server.title
    if server.odd == "malformed":
        body["packages"] = f"npx -y {server.identifier}"
    return _snake(body) if date == "2025-07-09" else body


def _package(world: World, server: Server, version: str) -> dict[str, Any]:
    package: dict[str, Any] = {
        "registryType": server.kind,
        "identifier": server.identifier,
        "version": version,
        "transport": {"type": "stdio"},
    }
    if server.kind == "mcpb":
        package["identifier"] = world.bundle_url(server)
        package["fileSha256"] = world.bundle(server).sha256
    else:
        package["runtimeHint"] = _HINTS[server.kind]
    if server.kind == "npm":
        package["runtimeArguments"] = [{"type": "positional", "value": "-y"}]
    if server.args:
        package["packageArguments"] = [_argument(one) for one in server.args]
    if server.env:
        package["environmentVariables"] = [
            {
                "name": one.name,
                "description": one.description,
                "isRequired": one.required,
                "isSecret": one.secret,
                **({"default": one.default} if one.default else {}),
            }
            for one in server.env
        ]
    return package


def _argument(one: Any) -> dict[str, Any]:
    if isinstance(one, str):
        return {"type": "positional", "value": one}
    return {
        "type": "positional",
        "valueHint": one["name"],
        "format": one["format"],
        "description": one["description"],
        "isRequired": True,
    }


def _snake(value: Any) -> Any:
    """The record as the first dated schema spelt its members."""
    if isinstance(value, list):
        return [_snake(item) for item in value]
    if isinstance(value, dict):
        return {re.sub("([A-Z])", r"_\1", key).lower(): _snake(v) for key, v in value.items()}
    return value


def _cursor(record: dict[str, Any]) -> str:
    return f"{record['server']['name']}:{record['server']['version']}"


def _is_version(record: dict[str, Any], wanted: str) -> bool:
    if wanted == "latest":
        return record["_meta"][_OFFICIAL]["isLatest"]
    return record["server"]["version"] == wanted
