"""Registry: the replica of the official MCP registry."""

from collections.abc import Sequence
from typing import Any

from starlette.routing import Route

from demo.replicas.reply import Reply, reply_json
from demo.sites.envelope import Envelope
from demo.world.listing_page import RecordList
from demo.world.record import Record

_OFFICIAL = "io.modelcontextprotocol.registry/official"


class Registry(Envelope):
    """Reading needs no key; `/v0` answers like `/v0.1`."""

    name = "registry"

    def list_routes(self) -> Sequence[Route]:
        return [
            self.make_route(f"/{api}/servers{path}", handler)
            for api in ("v0.1", "v0")
            for path, handler in (
                ("", self.list_servers),
                ("/{name:path}/versions/{version}", self.show_version),
                ("/{name:path}/versions", self.list_versions),
            )
        ]

    def make_meta(self, record: Record, latest: bool) -> dict[str, Any]:
        official = {
            "status": "deleted" if record.deleted else "active",
            "statusChangedAt": record.revised_at,
            "publishedAt": record.revised_at,
            "updatedAt": record.revised_at,
            "isLatest": latest,
        }
        return {_OFFICIAL: official}

    def reply_error(self, status: int, text: str) -> Reply:
        if status == 404:
            return reply_json({"error": text}, 404)
        return reply_json({"title": text, "status": status}, status)

    def _find_twice(self, records: RecordList) -> Record | None:
        return records.find("units") if self.world().page else None
