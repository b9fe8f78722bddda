"""Every text that is embedded of a row: of a tool, a server, a request."""

import json
from collections import defaultdict
from functools import partial

import polars as pl

from assets.catalogue.catalogue import CATALOGUE
from assets.contracts.canonical import tool_text
from assets.vectors.index import build_server_text
from assets.vectors.texts import build_server_views, split_id
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject

_WHOLE = ("instruction", "positive", "summary")  # columns whose texts are embedded as they are


class RowTexts:
    """The texts of rows, table by table. A server is embedded under the names that the catalogue
    has for it, so that is to be read before the tables of contracts."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)  # server id -> what it is called

    def collect(self, table: str, frame: pl.DataFrame) -> set[str]:
        """The texts by which rows of a table may stand in the vector store."""
        found = {
            text for name in _WHOLE if name in frame.columns for text in frame[name].drop_nulls()
        }
        if table == CATALOGUE.name:
            for name, about, servers in frame.select("name", "description", "server_ids").rows():
                for server in servers or ():
                    called = name or split_id(server)
                    self._names[server].add(called)
                    found.add(build_server_views(called, about or "", "", [])["server"])
        if {"server_id", "contract"} <= set(frame.columns):
            found |= self._collect_contract_texts(frame)
        return found

    def _collect_contract_texts(self, frame: pl.DataFrame) -> set[str]:
        rows = frame.select("server_id", "contract").drop_nulls().unique().rows()
        found, servers = set[str](), defaultdict[str, list[JsonObject]](list)
        for server, text in rows:
            contract = try_item(partial(_read_contract, text), lambda _: None)
            if contract is not None:
                found.add(tool_text(contract))
                servers[server].append(contract)
        for server, contracts in servers.items():
            found.add(build_server_text(server, contracts))
            for name in (*self._names[server], split_id(server)):
                found |= set(build_server_views(name, "", "", contracts).values())
        return found


def _read_contract(text: str) -> JsonObject:
    contract = json.loads(text)
    tool_text(contract)  # one that has no text is in no index either
    return contract
