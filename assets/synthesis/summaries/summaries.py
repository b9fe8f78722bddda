"""Server summaries: what kinds of things a server's tools do, in a few sentences, kept until they
change.

    clear contracts + description -> plan by digest -> generator role, or offline -> rows

MCP-Zero matches a request for a server against its description *and* such a summary. A summary is
written once: it is made anew when the server's contracts, its description, the prompt or the model
change. One that fails leaves the last text in its row, which says `failed`, and is due again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl

from assets.columns import (
    COMPLETION_TOKENS,
    ERROR_KIND,
    HINT,
    MODEL,
    PROMPT_TOKENS,
    PROVIDER,
    SERVER_ID,
    USD,
)
from assets.synthesis.prompts import read_prompt
from assets.synthesis.summaries.ask import (
    MOST_TOOLS,
    PROMPT,
    ROLE,
    Server,
    ask_all,
    digest_plan,
    make_failed_row,
    make_row,
)
from assets.synthesis.summaries.offline import get_offline_version, make_readable, write_summary
from assets.synthesis.verify.checks.injected_orders import find_order
from assets.vectors.index import read_contract
from warehouse.item_failure import tell_failure, try_item
from warehouse.json_types import Json, JsonObject, Row
from warehouse.llm.client import LLM, OFFLINE
from warehouse.llm.roles import PENDING
from warehouse.progress import Progress
from warehouse.storage.digest import digest
from warehouse.storage.tables import Plan, TableSpec, plan_keys

_LONGEST_DESCRIPTION = 2_000  # characters

SUMMARIES = TableSpec(
    name="server_summaries",
    key=("server_id",),
    columns={
        "server_id": SERVER_ID,
        "contracts_digest": (pl.String, "of the digests of its contracts, as a set"),
        "contracts": (pl.String, "JSON list of those digests"),
        "made_by": (pl.String, "digest of the description, prompt and model, or the offline rules"),
        "summary": (pl.String, '"" where there never was one'),
        "tools": (pl.Int64, "of the server"),
        "tools_shown": (pl.Int64, "to the model; offline reads all"),
        "prompt": (pl.String, "its digest"),
        "provider": PROVIDER,
        "model": MODEL,
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": COMPLETION_TOKENS,
        "usd": USD,
        "status": (pl.String, "ok, failed, pending; the last two keep the summary that they had"),
        "error_kind": ERROR_KIND,
        "hint": HINT,
    },
)


def make_summaries(
    rows: Iterable[Row],
    descriptions: Mapping[str, str],
    llm: LLM | None,
    previous: Iterable[Row] = (),
    *,
    progress: Progress | None = None,
) -> tuple[list[dict[str, Any]], Plan]:
    """Rows of SUMMARIES, one per server, and what was made, kept and dropped of them.

    `rows`: clear contracts, of any number of marketplaces;
    `descriptions`: what listings say of a server. Without `llm`, or where its generator is offline,
    the summary is read from the contracts. Raises LLMError for faults of
    the settings only.
    """
    llm = llm if llm is not None and llm.role(ROLE).model != OFFLINE else None
    held = {row["server_id"]: dict(row) for row in previous}
    servers = _make_servers(rows, descriptions, llm)
    made_of = {
        name: digest_plan(json.loads(row["contracts"]), row["made_by"])
        for name, row in held.items()
    }
    failed = {name for name, row in held.items() if row["status"] != "ok"}
    due = plan_keys(made_of, {name: server.plan for name, server in servers.items()}, retry=failed)
    wanted = [servers[name] for name in due.due]
    made = (
        ask_all(wanted, llm, progress)
        if llm
        else [
            try_item(partial(_summarise_offline, one), partial(make_failed_row, one))
            for one in wanted
        ]
    )
    kept = [held[name] for name in due.unchanged]
    fresh = [_keep_text(row, held.get(row["server_id"])) for row in made]
    return SUMMARIES.frame([*kept, *fresh]).to_dicts(), due


def find_summary_flaws(rows: Sequence[Row], floor: float = 0.5) -> list[str]:
    """The audit's question: are too many servers without any summary?"""
    due = [row for row in rows if row["status"] != PENDING]
    empty = [row for row in due if not row["summary"]]
    if len(empty) <= floor * len(due):
        return []
    why = tell_failure(empty[0]["error_kind"], empty[0]["hint"])
    first = f"{empty[0]['server_id']}: {why}"
    return [f"{len(empty)} of {len(due)} servers have no summary, e.g. {first}"]


def _make_servers(
    rows: Iterable[Row], descriptions: Mapping[str, str], llm: LLM | None
) -> dict[str, Server]:
    found: dict[str, dict[str, JsonObject]] = defaultdict(dict)
    for row in rows:
        found[row["server_id"]][row["contract_digest"]] = read_contract(row)
    made = {}
    for name in sorted(found):
        description = " ".join((descriptions.get(name) or "").split())[:_LONGEST_DESCRIPTION]
        # A description stands in no contract, so no scan of tools has read it.
        description = "" if find_order(description) else description
        made[name] = Server(
            name, found[name], description, digest(_describe_maker(llm, description))
        )
    return made


def _describe_maker(llm: LLM | None, description: str) -> list[Json]:
    """Whatever decides a summary beside the contracts. Offline reads no description."""
    if llm is None:
        return [get_offline_version()]
    return [
        digest({"text": description}),
        read_prompt(PROMPT).digest,
        MOST_TOOLS,
        llm.identity(ROLE),
    ]


def _summarise_offline(server: Server) -> dict[str, Any]:
    text = write_summary(make_readable(server.server_id), list(server.contracts.values()))
    row = make_row(server, provider=OFFLINE, model=get_offline_version())
    return {**row, "summary": text, "status": "ok"}


def _keep_text(row: dict[str, Any], before: Row | None) -> dict[str, Any]:
    """A failed summary keeps the last one: an old text finds its server, an empty one does not."""
    if row["status"] == "ok" or before is None:
        return row
    return {**row, "summary": before["summary"]}
