"""What `tools/list` shows: our four tools, described by the index in use, and pinned tools flat."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Any

from assets.contracts.tool_id import compile_globs
from serving.meta.access.policy import MetaPolicy
from serving.meta.index_summary import summarise_index, write_summary
from serving.meta.tools.consent import explain_consent
from serving.meta.tools.schemas import CALL, DESCRIBE, FIND, INPUTS, OUTPUTS, REPORT
from serving.meta.untrusted_text import show_line
from warehouse.sanitize.escape import escape_text
from warehouse.sanitize.quote import quote_name, quote_text

if TYPE_CHECKING:
    from serving.index.model import Index, Tool
    from serving.meta.context import Seen
    from serving.router import Router

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
_READS = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
_HINTS = {
    FIND: _READS,
    DESCRIBE: _READS,
    CALL: {
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": False,
        "openWorldHint": True,
    },
    REPORT: {
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": False,
        "openWorldHint": False,
    },
}


@dataclass(frozen=True)
class Listed:
    """What of one index one token is shown. tools: None without an index. pinned: name in the list
    -> tool id; `flat` are those tools as `tools/list` has them."""

    tools: int | None = None
    servers: int = 0
    summary: str = ""
    pinned: Mapping[str, str] = field(default_factory=dict)
    flat: tuple[dict[str, Any], ...] = ()


def describe_seen(router: "Router", seen: "Seen", policy: MetaPolicy) -> Listed:
    """What a token that sees this of the index is shown of it."""
    from warehouse.llm.chat import write_wire_name

    index = router.index
    places = select_pinned(router, seen, policy.pinned)
    ids = [index.tools[at].tool_id for at in places]
    names = [write_wire_name(one) for one in ids]  # never one of ours: an id is no sound name
    flat = [
        _list_flat(name, index.tools[at], index.contract(at), policy)
        for name, at in zip(names, places, strict=True)
    ]
    summary = write_summary(summarise_index(index, seen.servers))
    pinned = dict(zip(names, ids, strict=True))
    return Listed(len(seen.places), len(seen.servers), summary, pinned, tuple(flat))


def select_pinned(router: "Router", seen: "Seen", patterns: tuple[str, ...]) -> list[int]:
    """The places of the tools that are shown flat: ids or globs over ids, at most MOST_PINNED."""
    tools = router.index.tools
    exact = [router.index.place_of(pattern) for pattern in patterns]
    globs = [one for one, at in zip(patterns, exact, strict=True) if at is None]
    found = {at for at in exact if at is not None and at in seen.places}
    if globs:
        matches = compile_globs(globs)
        found |= {at for at in seen.places if matches(tools[at].server_id, tools[at].tool)}
    order = sorted(found, key=lambda at: tools[at].tool_id)
    return _drop_refused(router, [at for at in order if not tools[at].unverified][:MOST_PINNED])


def _drop_refused(router: "Router", places: list[int]) -> list[int]:
    """Without tools whose parameters no model's API takes: a client that hands the list on would
    have no tool at all."""
    from serving.meta.functions import list_refused

    named = {router.index.tools[at].tool_id: at for at in places}
    refused = list_refused((name, router.index.contract(at)) for name, at in named.items())
    if refused:
        some = "; ".join(f"{escape_text(one)}: {why}" for one, why in list(refused.items())[:3])
        logger.warning("pinned tools that are not listed: %d (%s)", len(refused), some)
    return [at for name, at in named.items() if name not in refused]


def find_unused_pins(index: "Index", patterns: Sequence[str]) -> list[str]:
    """The patterns that fit no launched tool of the index: misspelt, or the tool is gone."""
    pairs = [(tool.server_id, tool.tool) for tool in index.tools if not tool.unverified]
    return [pattern for pattern in patterns if not any(starmap(compile_globs([pattern]), pairs))]


def list_tools(listed: Listed, calls: bool, kept: str) -> list[dict[str, Any]]:
    """The tools as `tools/list` has them. calls: whether tools may be called at all. kept: what is
    remembered of what this client asks."""
    tools = listed.tools
    known = "no tools yet (no index)" if tools is None else _describe_count(tools, "tool")
    facts = {"tools": known, "servers": _describe_count(listed.servers, "server")}
    ours = [
        {
            "name": name,
            "title": _TITLES[name],
            "description": about.format(**facts, summary=listed.summary, kept=kept),
            "inputSchema": INPUTS[name],
            "outputSchema": OUTPUTS[name],
            "annotations": {"title": _TITLES[name], **_HINTS[name]},
        }
        for name, about in _ABOUT.items()
        if calls or name != CALL
    ]
    return [*ours, *(listed.flat if calls else ())]


def _list_flat(
    name: str, tool: "Tool", contract: Mapping[str, Any], policy: MetaPolicy
) -> dict[str, Any]:
    """A third-party tool as one of the list. What it says of itself is quoted; that it only reads
    is handed on only where it would run unasked."""
    from serving.meta.functions import bound_parameters

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
