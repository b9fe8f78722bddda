"""The contracts of a marketplace that pairs may be written about."""

import json
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from assets.contracts.quarantined_tools import key_contract, read_contracts
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import read_contract
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Record
from warehouse.store import Warehouse


@dataclass(frozen=True)
class ClearOffer:
    """The clear contracts of a marketplace."""

    rows: list[Record]
    held: frozenset[str]  # digests of the contracts that are kept out

    @cached_property
    def servers(self) -> dict[str, list[str]]:
        """Server id -> digests of its contracts."""
        servers: dict[str, list[str]] = {}
        for row in self.rows:
            servers.setdefault(row["server_id"], []).append(row["contract_digest"])
        return servers

    @cached_property
    def contracts(self) -> dict[str, dict[str, Any]]:
        """contract digest -> contract; an empty one where it cannot be read."""
        return {
            row["contract_digest"]: try_item(partial(read_contract, row), lambda _: {})
            for row in self.rows
        }

    @property
    def usable(self) -> list[Record]:
        """Contracts whose schema can be validated against; the others get no pairs."""
        return [row for row in self.rows if row["schema_problem"] is None]

    def offers_contract_of(self, pair: JsonObject) -> bool:
        """Whether a pair's own contract is still offered."""
        return key_contract(pair) in self._keys

    def shows_only_clear(self, pair: JsonObject) -> bool:
        """Whether every contract that a prompt of this pair showed is still offered."""
        return self.contracts.keys() >= set(json.loads(pair["contracts"] or "[]"))

    @cached_property
    def _keys(self) -> set[tuple[str, str, str]]:
        return {key_contract(row) for row in self.rows}


def read_offer(warehouse: Warehouse, name: str) -> ClearOffer:
    """What may be written about. Raises DecisionError when the record of decisions is broken."""
    clear, held_rows = read_contracts(warehouse, name)
    licences = warehouse.tables.read(DEPLOYMENTS, name).select("server_id", "license")
    stated = {server: licence for server, licence in licences.iter_rows() if licence}
    rows = [{**row, "license": stated.get(row["server_id"])} for row in clear]
    return ClearOffer(rows, frozenset(row["contract_digest"] for row in held_rows))
