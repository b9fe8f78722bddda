"""Asking the offline provider as the client would, for its tests."""

import asyncio
from typing import Any

from pydantic import BaseModel

from assets.contracts.canonical import canonicalize_contract
from assets.synthesis.offline.provider import OfflineProvider
from assets.synthesis.offline.wording import find_absent
from tests.synthesis.contracts import ALL
from warehouse.llm.client import ModelRequest, Role

CONTRACTS = [canonicalize_contract(tool) for tool in ALL]
ENVIRONMENT = {
    "files": ["/srv/harbour/tides.csv", "/srv/harbour/crew.txt"],
    "ids": ["HARB-17", "4411"],
    "places": ["Zierikzee"],
    "people": ["Wim Dekker"],
    "dates": ["2026-02-11"],
}


def ask(role: str, schema: type[BaseModel], meta: dict[str, Any], seed: int = 0) -> Any:
    """One answer through the provider, parsed as its caller would."""
    request = ModelRequest(Role(role), [], schema, seed, meta, 1024)
    completion = asyncio.run(OfflineProvider().answer(request))
    assert completion.model.startswith("offline-")
    return schema.model_validate_json(completion.text)


def grounded(of: dict, text: str, values: dict, borrowed: list[str] | tuple = ()) -> bool:
    return not [name for name in find_absent(of, text, values) if name not in borrowed]
