"""Server summaries: what kinds of things a server's tools do, in a few sentences, kept until they
change.

    clear contracts + description -> plan by digest -> generator role, or offline -> rows

What belongs here: the table, what is due, what a prompt shows, and a row for whatever became of it.
What does not: the offline text (`summaries_offline.py`), the prompt (`summarise.md`), the client.

MCP-Zero matches a request for a server against its description *and* such a summary. A summary is
bought once: it is made anew when the server's contracts, its description, the prompt or the model
change. One that fails leaves yesterday's text in its row, which says `failed`, and is due again.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic import BaseModel, Field

from assets.contracts.canonical import parameters
from assets.synthesis.prompts import prompt
from assets.synthesis.rules.heeding import given_order
from assets.synthesis.writing.asking import marker
from assets.vectors.index import contract_of
from assets.vectors.summaries_offline import offline_version, readable, summary_of
from warehouse.digest import digest
from warehouse.effects.ledger import BudgetExceeded
from warehouse.effects.llm import LLM, OFFLINE, LLMError
from warehouse.progress import Progress, Silent
from warehouse.tables import Plan, TableSpec, plan

Json = Any
Row = Mapping[str, Any]

PROMPT, ROLE = "summarise", "generator"
MOST_TOOLS = 60  # shown in one prompt, spread evenly over their names
_LONGEST_TOOL, _LONGEST_DESCRIPTION, _LONGEST_SUMMARY = 400, 2_000, 1_500  # characters
_SEED = 7

SUMMARIES = TableSpec(
    name="server_summaries",
    key=("server_id",),
    columns={
        "server_id": pl.String,
        "contracts_digest": pl.String,  # of the digests of its contracts, as a set
        "contracts": pl.String,  # JSON list of those digests
        "made_by": pl.String,  # digest of the description, prompt and model, or the offline rules
        "summary": pl.String,  # "" where there never was one
        "tools": pl.Int64,
        "tools_shown": pl.Int64,  # to the model; offline reads all
        "prompt": pl.String,  # its digest
        "provider": pl.String,
        "model": pl.String,
        "prompt_tokens": pl.Int64,
        "completion_tokens": pl.Int64,
        "usd": pl.Float64,
        "status": pl.String,  # "ok" or "failed"; a failed row keeps the summary it had
        "error_kind": pl.String,
        "hint": pl.String,
    },
)


class Summary(BaseModel):
    """The generator's answer to `summarise`."""

    summary: str = Field(min_length=20, max_length=4000)


@dataclass(frozen=True)
class _Server:
    """One server whose summary is wanted."""

    server_id: str
    contracts: dict[str, Mapping[str, Json]]  # by digest
    description: str
    made_by: str

    @property
    def plan(self) -> str:
        return _planned(self.contracts, self.made_by)

    @property
    def shown(self) -> list[Mapping[str, Json]]:
        """Its tools by name; of very many, some at even distances."""
        listed = sorted(self.contracts.values(), key=lambda c: (c["name"], json.dumps(c)))
        if len(listed) <= MOST_TOOLS:
            return listed
        return [
            listed[place * (len(listed) - 1) // (MOST_TOOLS - 1)] for place in range(MOST_TOOLS)
        ]


def make_summaries(
    rows: Iterable[Row],
    descriptions: Mapping[str, str],
    llm: LLM | None,
    previous: Iterable[Row] = (),
    *,
    current: Callable[[str], str] = lambda name: name,
    progress: Progress | None = None,
) -> tuple[list[dict[str, Any]], Plan]:
    """Rows of SUMMARIES, one per server, and what was made, kept and dropped of them.

    `rows`: *clear* snapshot rows, the firewall's answer, of any number of marketplaces;
    `descriptions`: what listings say of a server. Without `llm`, or where its generator is offline,
    the summary is read from the contracts. `current`: today's name of a contract digest, so that a
    new canonical form buys nothing again. Raises LLMError for faults of the settings only.
    """
    llm = llm if llm is not None and llm.role(ROLE).model != OFFLINE else None
    held = {row["server_id"]: dict(row) for row in previous}
    servers = _servers(rows, descriptions, llm, current)
    made_of = {
        name: _planned(map(current, json.loads(row["contracts"])), row["made_by"])
        for name, row in held.items()
    }
    failed = {name for name, row in held.items() if row["status"] != "ok"}
    due = plan(made_of, {name: server.plan for name, server in servers.items()}, retry=failed)
    wanted = [servers[name] for name in due.due]
    made = _asked(wanted, llm, progress or Silent()) if llm else [_offline(one) for one in wanted]
    kept = [held[name] for name in due.unchanged]
    fresh = [_kept_text(row, held.get(row["server_id"])) for row in made]
    return SUMMARIES.frame([*kept, *fresh]).to_dicts(), due


def summary_flaws(rows: Sequence[Row], floor: float = 0.5) -> list[str]:
    """The audit's question: are too many servers without any summary?"""
    empty = [row for row in rows if not row["summary"]]
    if len(empty) <= floor * len(rows):
        return []
    first = f"{empty[0]['server_id']}: {empty[0]['error_kind']}, {empty[0]['hint']}"
    return [f"{len(empty)} of {len(rows)} servers have no summary, e.g. {first}"]


def _servers(
    rows: Iterable[Row],
    descriptions: Mapping[str, str],
    llm: LLM | None,
    current: Callable[[str], str],
) -> dict[str, _Server]:
    found: dict[str, dict[str, Mapping[str, Json]]] = defaultdict(dict)
    for row in rows:
        found[row["server_id"]][current(row["contract_digest"])] = contract_of(row)
    made = {}
    for name in sorted(found):
        told = " ".join((descriptions.get(name) or "").split())[:_LONGEST_DESCRIPTION]
        # A description stands in no contract, so no scan of tools has read it.
        told = "" if given_order(told) else told
        made[name] = _Server(name, found[name], told, digest(_how(llm, told)))
    return made


def _how(llm: LLM | None, description: str) -> list[Json]:
    """Whatever decides a summary beside the contracts. Offline reads no description."""
    if llm is None:
        return [offline_version()]
    return [digest({"text": description}), prompt(PROMPT).digest, MOST_TOOLS, llm.identity(ROLE)]


def _planned(names: Iterable[str], made_by: str) -> str:
    return digest([sorted(names), made_by])


def _offline(server: _Server) -> dict[str, Any]:
    text = summary_of(readable(server.server_id), list(server.contracts.values()))
    row = _row(server, provider=OFFLINE, model=offline_version())
    return {**row, "summary": text, "status": "ok"}


def _asked(servers: Sequence[_Server], llm: LLM, progress: Progress) -> list[dict[str, Any]]:
    """The rows of all servers, in their order; run to the end in an event loop of its own."""
    return asyncio.run(_ask_all(servers, llm, progress))


async def _ask_all(
    servers: Sequence[_Server], llm: LLM, progress: Progress
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{} for _ in servers]
    queue = iter(enumerate(servers))

    async def work() -> None:
        for place, server in queue:  # all workers share one iterator: no task waits in memory
            rows[place] = await _ask(server, llm)
            done = sum(map(bool, rows))
            if done % 25 == 0 or done == len(servers):
                progress.update("summaries", done, len(servers), **llm.figures())

    workers = min(len(servers), llm.role(ROLE).concurrency)
    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await llm.aclose()
    return rows


async def _ask(server: _Server, llm: LLM) -> dict[str, Any]:
    """One row, whatever becomes of it. Raises LLMError for faults of the settings only."""
    role, asked, shown = llm.role(ROLE), prompt(PROMPT), server.shown
    row = _row(server, provider=role.provider, model=role.model)
    row |= {"prompt": asked.digest, "tools_shown": len(shown)}
    values = {
        "server": readable(server.server_id),
        "description": server.description or "none",
        "tools": "\n".join(map(_line, shown)),
        "shown": f"{len(shown)} of the server's {len(server.contracts)} tools are shown.",
    }
    try:
        messages = asked.messages(mark=marker(values), **values)
        reply = await llm.complete(ROLE, messages, schema=Summary, seed=_SEED)
    except (LLMError, BudgetExceeded) as error:
        if isinstance(error, LLMError) and error.kind in ("unknown_role", "no_provider"):
            raise
        kind = error.kind if isinstance(error, LLMError) else "budget"
        return {**row, "status": "failed", "error_kind": kind, "hint": str(error)[:300]}
    row |= {
        "model": reply.model,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "usd": reply.usd,
    }
    text = _plain(reply.value.summary)
    if (order := given_order(text)) is not None:
        hint = f"{order}; the answer is kept in the ledger; look at the tools' texts"
        return {**row, "status": "failed", "error_kind": "suspicious", "hint": hint[:300]}
    return {**row, "status": "ok", "summary": text}


def _row(server: _Server, **by: str) -> dict[str, Any]:
    names = sorted(server.contracts)
    return {
        "server_id": server.server_id,
        "contracts_digest": digest(names),
        "contracts": json.dumps(names),
        "made_by": server.made_by,
        "summary": "",
        "tools": len(names),
        "tools_shown": len(names),
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "usd": 0.0,
        **by,
    }


def _kept_text(row: dict[str, Any], before: Row | None) -> dict[str, Any]:
    """A failed summary keeps yesterday's: an old text finds its server, an empty one does not."""
    if row["status"] == "ok" or before is None:
        return row
    return {**row, "summary": before["summary"]}


def _line(contract: Mapping[str, Json]) -> str:
    """One tool as a prompt shows it."""
    about = " ".join(str(contract.get("description") or contract.get("title") or "").split())
    takes = ", ".join(name for name, _ in parameters(contract))
    line = f"- {contract['name']}({takes[:120]}): {about}"
    return " ".join(line.split())[:_LONGEST_TOOL]


def _plain(text: str) -> str:
    """A model's answer as one paragraph of visible characters."""
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text[:_LONGEST_SUMMARY]
