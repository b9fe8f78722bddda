"""A marketplace of the tests' own: a JSON list by page number, a JSON page per record.

It is also what a user writes to add one: `docs/extending.md` shows the same interface.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from assets.marketplaces import listing, payload, policy
from assets.marketplaces.launch.mcp_config import read_launch_facts


class AcmeAdapter(policy.MarketplaceAdapter):
    name: ClassVar[str] = "acme"
    robots: ClassVar[bool] = True

    async def refs(self, get: policy.FetchPage) -> AsyncIterator[policy.RecordPage]:
        number = 1
        while True:
            body = await get(
                f"{self.policy.base_url}/list?page={number}", payload.check_json_list("servers")
            )
            refs = [self._ref(item) for item in body["servers"]]
            yield policy.RecordPage(refs, ended=number >= body.get("pages", 1))
            if number >= body.get("pages", 1):
                return
            number += 1

    def _ref(self, item: dict[str, Any]) -> policy.RecordRef:
        url = f"{self.policy.base_url}/servers/{item['id']}"
        return policy.RecordRef(item["id"], url, item.get("revision"), weak=item.get("weak", False))

    async def detail(
        self, ref: policy.RecordRef, get: policy.FetchPage, render: policy.RenderPage
    ) -> Any:
        return await get(ref.url, lambda page: payload.parse_json_object(page, "name"), ref=ref)

    def parse(self, raw: Any, ref: policy.RecordRef) -> list[listing.Listing]:
        facts = read_launch_facts(raw["config"]) | {"name": str(raw["name"]), "evidence": "config"}
        return [listing.Listing(marketplace=self.name, native_id=ref.native_id, **facts)]


def server(name: str, **facts: Any) -> str:
    """One record's page."""
    config = {"command": "npx", "args": ["-y", f"{name}@1.0.0"], **facts}
    return json.dumps({"name": name, "config": config})
