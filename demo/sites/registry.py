"""Registry: the replicas of the official MCP registry and of PulseMCP, which has its list API."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, reply_json
from demo.replicas.site import ReplicaSite
from demo.world.catalogue import RecordList
from demo.world.record import KEYS, RecordInput, ServerRecord

_HEADERS = {"X-API-Key": "api_key", "X-Tenant-ID": "tenant_id"}


_HINTS = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_SCHEMAS = "https://static.modelcontextprotocol.io/schemas"


def make_server_json(record: ServerRecord) -> dict[str, Any]:
    """The record in the schema of its time."""
    body: dict[str, Any] = {
        "$schema": f"{_SCHEMAS}/{record.schema}/server.schema.json",
        "name": record.registry_name,
        "description": record.description,
        "version": record.version,
    }
    if record.repository:
        body["repository"] = {"url": record.repository, "source": "github"}
    if record.schema >= "2025-10-17":
        body["title"] = record.title
    if record.package:
        body["packages"] = [_make_package(record)]
    if record.remote:
        body["remotes"] = [_make_remote(record)]
    if record.odd == "malformed" and record.package:
        body["packages"] = f"npx -y {record.package.identifier}"
    return _convert_to_snake(body) if record.schema == "2025-07-09" else body


def _make_package(record: ServerRecord) -> dict[str, Any]:
    facts = record.package
    assert facts is not None
    package: dict[str, Any] = {
        "registryType": facts.kind,
        "identifier": facts.url or facts.identifier,
        "version": facts.version,
        "transport": {"type": "stdio"},
    }
    if facts.sha256:
        package["fileSha256"] = facts.sha256
    if facts.kind in _HINTS:
        package["runtimeHint"] = _HINTS[facts.kind]
    if facts.kind == "oci" and record.schema >= "2025-10-17":
        package["identifier"] = f"{facts.identifier}:{package.pop('version')}"
    if facts.kind == "npm":
        package["runtimeArguments"] = [{"type": "positional", "value": "-y"}]
    if record.args:
        package["packageArguments"] = [_read_argument(arg) for arg in record.args]
    if record.inputs:
        package["environmentVariables"] = [_make_variable(item) for item in record.inputs]
    return package


def _make_remote(record: ServerRecord) -> dict[str, Any]:
    facts = record.remote
    assert facts is not None
    remote: dict[str, Any] = {"type": facts.transport, "url": facts.url}
    if facts.auth == "api_key":
        header = RecordInput("Authorization", "Bearer token", required=True, secret=True)
        remote["headers"] = [_make_variable(header)]
    return remote


def _make_variable(variable: RecordInput) -> dict[str, Any]:
    default = {"default": variable.default} if variable.default else {}
    return {
        "name": variable.name,
        "description": variable.description,
        "isRequired": variable.required,
        "isSecret": variable.secret,
        **default,
    }


def _read_argument(argument: Any) -> dict[str, Any]:
    if isinstance(argument, str):
        return {"type": "positional", "value": argument}
    return {
        "type": "positional",
        "valueHint": argument["name"],
        "format": argument["format"],
        "description": argument["description"],
        "isRequired": True,
    }


def _convert_to_snake(value: Any) -> Any:
    """The record as the first dated schema spelt its members."""
    if isinstance(value, list):
        return [_convert_to_snake(item) for item in value]
    if isinstance(value, dict):
        return {
            re.sub("([A-Z])", r"_\1", key).lower(): _convert_to_snake(v) for key, v in value.items()
        }
    return value


Version = tuple[ServerRecord, bool]  # a version of a server, and whether it is the latest


class RegistryEnvelope(ReplicaSite):
    """`/v0.1/servers` and what is below it. A record there is one version of one server."""

    @abstractmethod
    def make_meta(self, record: ServerRecord, latest: bool) -> dict[str, Any]:
        """The `_meta` beside server.json."""

    @abstractmethod
    def reply_invalid(self) -> ReplicaReply:
        """The answer to a query that cannot be read, as this API words it."""

    def list_servers(self, request: Request) -> ReplicaReply:
        query = request.query_params
        limit = query.get("limit", "30")
        if not limit.isdecimal() or not 1 <= int(limit) <= 100:
            return self.reply_invalid()
        cursor = query.get("cursor")
        matching = self._find_matching(query, cursor)
        page = list(islice(matching, self.limit_page_size(int(limit))))
        last = next(matching, None) is None
        metadata: dict[str, Any] = {"count": len(page)}
        if self.fault_set().is_on("cursor_loop") and page:
            metadata["nextCursor"] = cursor or _make_cursor(page[-1][0])
        elif not last:
            metadata["nextCursor"] = _make_cursor(page[-1][0])
        servers = [
            {"server": make_server_json(record), "_meta": self.make_meta(record, latest)}
            for record, latest in page
        ]
        body = {self.name_member("servers"): servers, "metadata": metadata}
        return reply_json(body, last=last, validators=True)

    def _find_matching(self, query: QueryParams, cursor: str | None) -> Iterator[Version]:
        """Versions after a cursor; one that nobody gave starts from the beginning."""
        versions = list(self._list_versions())
        start = next(
            (
                n
                for n, (record_before, _) in enumerate(versions, 1)
                if _make_cursor(record_before) == cursor
            ),
            0,
        )
        for record, latest in versions[start:]:
            if latest or query.get("version") != "latest":
                yield record, latest

    def _list_versions(self) -> Iterator[Version]:
        """All versions: the oldest first within a name, and what comes twice."""
        records = self.list_records()
        for record in records:
            yield from ((older, False) for older in records.older.get(record.slug, ()))
            yield record, True
        if twice := self._find_twice(records):
            yield twice, True

    def _find_twice(self, records: RecordList) -> ServerRecord | None:
        """A record that comes twice, as real lists have it."""
        return None


class RegistrySite(RegistryEnvelope):
    """Reading needs no key."""

    name = "registry"

    def list_routes(self) -> Sequence[Route]:
        return [self.make_route("/v0.1/servers", self.list_servers)]

    def make_meta(self, record: ServerRecord, latest: bool) -> dict[str, Any]:
        return {
            "io.modelcontextprotocol.registry/official": {
                "status": "active",
                "statusChangedAt": record.revised_at,
                "publishedAt": record.revised_at,
                "updatedAt": record.revised_at,
                "isLatest": latest,
            }
        }

    def reply_invalid(self) -> ReplicaReply:
        return reply_json({"title": "Unprocessable Entity", "status": 422}, 422)

    def _find_twice(self, records: RecordList) -> ServerRecord | None:
        return records.find("units") if self.world().page else None


def _make_cursor(record: ServerRecord) -> str:
    return f"{record.registry_name}:{record.version}"


class PulseMcp(RegistryEnvelope):
    """`/v0.1` wants both headers."""

    name = "pulsemcp"

    def list_routes(self) -> Sequence[Route]:
        return [self.make_route("/v0.1/servers", self.list_servers)]

    def refuse_request(self, request: Request) -> ReplicaReply | None:
        for header, key in _HEADERS.items():
            wrong = request.headers.get(header) != KEYS["pulsemcp"][key]
            if wrong or self.fault_set().is_on("wrong_key"):
                error = "Invalid or missing " + ("API key" if key == "api_key" else "tenant")
                details = {"header": header}
                return reply_json({"error": error, "code": "unauthorized", "details": details}, 401)
        return None

    def make_meta(self, record: ServerRecord, latest: bool) -> dict[str, Any]:
        visits = int(record.make_digits(4), 16)
        return {
            "com.pulsemcp/server": {
                "visitorsEstimateMostRecentWeek": visits,
                "visitorsEstimateLastFourWeeks": visits * 4,
                "visitorsEstimateTotal": visits * 40,
                "isOfficial": visits % 9 == 0,
            },
            "com.pulsemcp/server-version": {
                "source": "registry.modelcontextprotocol.io",
                "status": "active",
                "publishedAt": record.revised_at,
                "updatedAt": record.revised_at,
                "isLatest": latest,
            },
        }

    def reply_invalid(self) -> ReplicaReply:
        error = {"error": "Unprocessable Entity", "code": "422", "details": {}}
        return reply_json(error, 422)
