"""PulseMCP: the replica of its sub-registry API: the registry's envelope behind two headers."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from demo.replicas.reply import ReplicaReply, reply_json
from demo.sites.registry import RegistryEnvelope
from demo.world.record import KEYS, ServerRecord

_HEADERS = {"X-API-Key": "api_key", "X-Tenant-ID": "tenant_id"}


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
