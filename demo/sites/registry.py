"""Registry: the replica of the official MCP registry."""

from collections.abc import Sequence
from typing import Any

from starlette.routing import Route

from demo.replicas.reply import Reply, in_json
from demo.sites.envelope import Envelope
from demo.world.listing_page import RecordList
from demo.world.record import Record

_OFFICIAL = "io.modelcontextprotocol.registry/official"


class Registry(Envelope):
    """Reading needs no key; `/v0` answers like `/v0.1`."""

    name = "registry"

    def routes(self) -> Sequence[Route]:
        return [
            self.route(f"/{api}/servers{path}", handler)
            for api in ("v0.1", "v0")
            for path, handler in (
                ("", self.list_servers),
                ("/{name:path}/versions/{version}", self.one_version),
                ("/{name:path}/versions", self.list_versions),
            )
        ]

    def meta(self, record: Record, latest: bool) -> dict[str, Any]:
        official = {
            "status": "deleted" if record.deleted else "active",
            "statusChangedAt": record.revised_at,
            "publishedAt": record.revised_at,
            "updatedAt": record.revised_at,
            "isLatest": latest,
        }
        return {_OFFICIAL: official}

    def error(self, status: int, text: str) -> Reply:
        if status == 404:
            return in_json({"error": text}, 404)
        return in_json({"title": text, "status": status}, status)

    def _twice(self, records: RecordList) -> Record | None:
        return records.find("units") if self.world().page else None
