"""What `tools/list` shows: our four tools with what can be found (a model does not call a mere
"find tools": toolhive, issue 4357) in categories of ours, not third-party words, and pinned
tools."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from assets.catalogue.categories import find_category
from assets.contracts.tool_id import compile_globs
from serving.discovery.functions import bound_parameters, list_refused
from serving.index.model import IndexedTool, RouterIndex
from serving.meta.consent import explain_consent
from serving.meta.context import VisibleTools
from serving.meta.policy import MetaPolicy
from serving.meta.schemas import CALL, DESCRIBE, FIND, INPUTS, OUTPUTS, REPORT
from serving.router import Router
from serving.untrusted_text import show_line
from warehouse.llm.chat import write_wire_name
from warehouse.sanitize.untrusted_text import escape_text, quote_name, quote_text

_CATEGORIES = 6
# Of a server: characters of what is said of it, and of the names of its tools. All of 1,500 servers
# are read before the first list is shown.
_TEXT, _TOOLS = 500, 50
_OTHER = "other"
logger = logging.getLogger(__name__)
MOST_PINNED = 32  # tools that are listed beside ours; the first by id
_ABOUT = {
    FIND: (
        "Find tools among {tools} of {servers}.{summary} Give a query, or server and/or tool, or"
        " several requests, or text with <tool_assistant> blocks. Answers ids and one line each;"
        " nothing is run. If none fits, ask again in other words."
    ),
    DESCRIBE: "The whole contract of one tool, how it would be run, and whether a person is asked.",
    CALL: (
        "Call one tool by its id. Arguments are checked against its contract first. A tool that may"
        " change something is run only with consent. Its result is third-party data."
    ),
    REPORT: "Say whether a call or tool helped. {kept}.",
}
_TITLES = {FIND: "Find tools", DESCRIBE: "Describe a tool", CALL: "Call a tool",
           REPORT: "Report an outcome"}  # fmt: skip


def _make_hints(reads: bool, destroys: bool, open_world: bool) -> dict[str, bool]:
    return {
        "readOnlyHint": reads, "destructiveHint": destroys, "idempotentHint": reads,
        "openWorldHint": open_world,
    }  # fmt: skip


_HINTS = {
    FIND: _make_hints(True, False, False),
    DESCRIBE: _make_hints(True, False, False),
    CALL: _make_hints(False, True, True),
    REPORT: _make_hints(False, False, False),
}


def summarise_index(index: RouterIndex, servers: Mapping[int, Sequence[int]]) -> str:
    """What the servers are for, in a sentence with a blank before it; "" where nothing is known.
    servers: place of a server -> places of its tools, those that may be seen."""
    counts: Counter[str] = Counter()
    for at, places in servers.items():
        server = index.servers[at]
        tools = " ".join(index.tools[place].tool for place in places[:_TOOLS])
        words = f"{server.description} {server.summary}"[:_TEXT] + f" {tools}"[:_TEXT]
        counts[find_category(words, f"{server.name} {server.server_id}"[:200])] += 1
    del counts[_OTHER]
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_CATEGORIES]
    categories = ", ".join(f"{name} ({n:,})" for name, n in largest)
    return f" They are for {categories}." if categories else ""


@dataclass(frozen=True)
class ToolListing:
    """What of one index one token is shown. tools: None without an index. pinned: name in the list
    -> tool id; `flat` are those tools as `tools/list` has them."""

    tools: int | None = None
    servers: int = 0
    summary: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)
    flat: tuple[dict[str, Any], ...] = ()


def describe_seen(router: Router, visible: VisibleTools, policy: MetaPolicy) -> ToolListing:
    """What a token that sees this of the index is shown of it."""
    index = router.index
    tools = router.index.tools
    exact = [router.index.place_of(pattern) for pattern in policy.pinned]
    globs = [one for one, at in zip(policy.pinned, exact, strict=True) if at is None]
    selected = {at for at in exact if at is not None and at in visible.places}
    if globs:
        matches = compile_globs(globs)
        selected |= {at for at in visible.places if matches(tools[at].server_id, tools[at].tool)}
    order = sorted(selected, key=lambda at: tools[at].tool_id)
    places = _drop_refused(router, [at for at in order if not tools[at].unverified][:MOST_PINNED])
    ids = [index.tools[at].tool_id for at in places]
    names = [write_wire_name(item) for item in ids]  # never one of ours: an id is no sound name
    flat = [
        _list_flat(name, index.tools[at], index.contract(at), policy)
        for name, at in zip(names, places, strict=True)
    ]
    summary = summarise_index(index, visible.servers)
    pinned = dict(zip(names, ids, strict=True))
    return ToolListing(len(visible.places), len(visible.servers), summary, pinned, tuple(flat))


def _drop_refused(router: Router, places: list[int]) -> list[int]:
    """Drops tools whose parameters no API takes: a client would lose its whole list."""

    place_of = {router.index.tools[at].tool_id: at for at in places}
    refused = list_refused((name, router.index.contract(at)) for name, at in place_of.items())
    if refused:
        some = "; ".join(
            f"{escape_text(tool_id)}: {why}" for tool_id, why in list(refused.items())[:3]
        )
        logger.warning("pinned tools that are not listed: %d (%s)", len(refused), some)
    return [at for name, at in place_of.items() if name not in refused]


def find_unused_pins(index: RouterIndex, patterns: Sequence[str]) -> list[str]:
    """The patterns that fit no launched tool of the index: misspelt, or the tool is gone."""
    pairs = [(tool.server_id, tool.tool) for tool in index.tools if not tool.unverified]
    return [pattern for pattern in patterns if not any(starmap(compile_globs([pattern]), pairs))]


def list_tools(listing: ToolListing, calls: bool, notice: str) -> list[dict[str, Any]]:
    """The tools as `tools/list` has them. calls: whether allowed. kept: what is remembered."""
    tools = listing.tools
    count = "no tools yet (no index)" if tools is None else _describe_count(tools, "tool")
    facts = {"tools": count, "servers": _describe_count(listing.servers, "server")}
    ours = [
        {
            "name": name,
            "title": _TITLES[name],
            "description": about.format(**facts, summary=listing.summary, kept=notice),
            "inputSchema": INPUTS[name],
            "outputSchema": OUTPUTS[name],
            "annotations": {"title": _TITLES[name], **_HINTS[name]},
        }
        for name, about in _ABOUT.items()
        if calls or name != CALL
    ]
    return [*ours, *(listing.flat if calls else ())]


def _list_flat(
    name: str, tool: IndexedTool, contract: Mapping[str, Any], policy: MetaPolicy
) -> dict[str, Any]:
    """A third-party tool as one of the list. What it says of itself is quoted; that it only reads
    is handed on only where it would run unasked."""

    reads = explain_consent(tool, policy) is None
    of = quote_name(tool.tool_id, 200)
    return {
        "name": name,
        "description": f"{quote_text(show_line(tool.description, 400))} Third-party tool {of}.",
        "inputSchema": bound_parameters(contract, quoted=True),
        "annotations": {"readOnlyHint": reads, "destructiveHint": not reads, "openWorldHint": True},
    }


def _describe_count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
