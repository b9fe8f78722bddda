"""Query sets for fitting a ranker: servers, requests and which side of the split each is on.

The retrieval sets, MetaTool and the corpus (`../shared/data/README.md` has their sources and
licences). Held-back sets (BFCL, LiveMCPBench, MCP-Atlas, Composio) are not among them; `sgd` is
measured and never fitted, because its sister services stand in BFCL.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assets.contracts.tool_id import ToolId
from benchmarks.shared_data import SHARED, read_corpus
from training.sets.split import TEST, split_of
from warehouse.storage.digest import sha256

Row = dict[str, Any]
FIT, HELD = "fit", "test"  # sides of a set: no server is on both
NEVER_FITTED = frozenset({"sgd"})
RETRIEVAL = (
    "acebench-en", "acebench-zh", "apibench", "home-assistant-intents", "nestful", "restbench",
    "sealtools", "sgd", "tldr-en", "tldr-i18n", "toolalpaca", "toolbench-rapidapi", "tooleyes",
    "tooltalk", "vendor-mcp-evals",
)  # fmt: skip
CORPUS, METATOOL = "corpus", "metatool"
NAMES = (*RETRIEVAL, METATOOL, CORPUS)


@dataclass(frozen=True)
class Request:
    """One request: any of `gold` is right, or all of them are wanted."""

    text: str
    gold: tuple[str, ...]  # tool ids, `server::tool`
    side: str = FIT
    wants_all: bool = False
    lang: str = ""  # where the set says so

    @property
    def server(self) -> str:
        """What an interval draws whole: the server of the first right tool."""
        return ToolId.parse(self.gold[0]).server_id


@dataclass(frozen=True)
class QuerySet:
    """Servers as a file lists them, and requests that are asked of their tools."""

    name: str
    servers: tuple[Row, ...]
    requests: tuple[Request, ...]

    @property
    def family(self) -> str:
        """Sets of one source share tools: where one is left out, all are."""
        return self.name.partition("-")[0]

    @property
    def tools(self) -> int:
        return sum(len(server["tools"]) for server in self.servers)


def read_set(name: str, shared: Path = SHARED) -> QuerySet:
    """One set, whole."""
    if name == CORPUS:
        return _read_corpus(shared)
    if name == METATOOL:
        return _read_metatool(shared / "metatool")
    folder = shared / "retrieval" / name
    requests = tuple(
        Request(
            row["instruction"], tuple(row["tool_ids"]), row["split"], bool(row.get("all")),
            row.get("lang", ""),
        )
        for row in _read_lines(folder / "queries.jsonl")
    )  # fmt: skip
    return QuerySet(name, tuple(_read_lines(folder / "servers.jsonl")), requests)


def trim_set(found: QuerySet, tools: int, requests: int) -> QuerySet:
    """The set with at most `tools` tools of whole servers, those that are asked for first, and at
    most `requests` of each side, drawn by digest; requests whose tools are gone go with them."""
    asked = {ToolId.parse(tool).server_id for request in found.requests for tool in request.gold}
    order = sorted(found.servers, key=lambda s: (_name(s) not in asked, draw_key("pool", _name(s))))
    kept: list[Row] = []
    room = tools
    for server in order:
        if not kept or len(server["tools"]) <= room:
            kept.append(server)
            room -= len(server["tools"])
    drawn = sorted(keep_answerable(found.requests, kept), key=lambda r: draw_key("query", r.text))
    sides = [[r for r in drawn if r.side == side][:requests] for side in (FIT, HELD)]
    return replace(found, servers=tuple(kept), requests=tuple(r for side in sides for r in side))


def keep_answerable(requests: Iterable[Request], servers: Sequence[Row]) -> list[Request]:
    """The requests all of whose right tools these servers have."""
    ids = {
        str(ToolId(_name(server), tool["name"])) for server in servers for tool in server["tools"]
    }
    return [request for request in requests if ids.issuperset(request.gold)]


def check_sides(found: QuerySet) -> None:
    """Raises ValueError where a server has requests on both sides of the split."""
    sides = [{r.server for r in found.requests if r.side == side} for side in (FIT, HELD)]
    if both := sorted(sides[0] & sides[1]):
        raise ValueError(f"{found.name}: {both[0]} has requests on both sides; expected one")


def choose_fitted(sets: Iterable[str], left_out: str | None) -> list[str]:
    """The sets that weights are fitted on where `left_out` is measured: none of its family, none
    that is never fitted."""
    family = (left_out or "-").partition("-")[0]
    return [n for n in sets if n not in NEVER_FITTED and n.partition("-")[0] != family]


def _read_corpus(shared: Path) -> QuerySet:
    servers = tuple(_read_lines(shared / "smithery" / "servers.jsonl"))
    side = {True: HELD, False: FIT}
    requests = [
        Request(row["instruction"], (row["tool_id"],), side[split_of(server) == TEST])
        for row in read_corpus(shared)
        for server in [ToolId.parse(row["tool_id"]).server_id]
    ]
    return QuerySet(CORPUS, servers, tuple(keep_answerable(requests, servers)))


def _read_metatool(folder: Path) -> QuerySet:
    """Each plug-in is the one tool of a server without a description."""
    described = json.loads((folder / "plugin_des.json").read_text(encoding="utf-8"))
    described |= json.loads((folder / "big_tool_des.json").read_text(encoding="utf-8"))
    with (folder / "all_clean_data.csv").open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["Tool"] in described]
    tools = sorted({row["Tool"] for row in rows})
    sides = {
        tool: FIT if int(draw_key("side", tool)[:8], 16) % 100 < 60 else HELD for tool in tools
    }
    servers = [
        {"qualified_name": t, "tools": [{"name": t, "description": described[t]}]} for t in tools
    ]
    requests = [
        Request(row["Query"], (str(ToolId(row["Tool"], row["Tool"])),), sides[row["Tool"]])
        for row in rows
    ]
    return QuerySet(METATOOL, tuple(servers), tuple(requests))


def _read_lines(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _name(server: Mapping[str, Any]) -> str:
    return server["qualified_name"]


def draw_key(salt: str, text: str) -> str:
    """What a thing is drawn by: the same on every machine, another for every purpose."""
    return sha256(f"{salt}|{text}".encode("utf-8", "surrogatepass"))
