"""Server summaries: a few sentences on what each server's tools do, kept until the tools change.

    clear contracts + description -> plan by digest -> generator role, or offline -> rows

MCP-Zero matches a request for a server against its description *and* such a summary. A summary is
made again when the server's contracts, its description, the prompt or the model change. A failed
row keeps its last text and is due again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from assets.columns import read_table_spec
from assets.contracts.canonical import iterate_parameters
from assets.synthesis.offline_summaries import get_offline_version, make_readable, write_summary
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.verify.model_text import find_order
from assets.vectors.index import read_contract
from warehouse.item_failure import INTERNAL, tell_failure, try_item
from warehouse.json_types import Contract, Json, JsonObject, Row
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, OFFLINE, LLMError, run_batch
from warehouse.llm.roles import PENDING
from warehouse.progress import Progress
from warehouse.storage.digest import digest
from warehouse.storage.tables import RowPlan, plan_keys

PROMPT, ROLE = "summarise", "generator"
MOST_TOOLS = 60  # shown in one prompt, spread evenly over their names
_LONGEST_TOOL, _LONGEST_SUMMARY = 400, 1_500  # characters
_SEED = 7


class ServerSummary(BaseModel, title="Summary"):
    """The generator's answer to `summarise`."""

    summary: str = Field(min_length=20, max_length=4000)


@dataclass(frozen=True)
class SummaryRequest:
    """One server whose summary is wanted."""

    server_id: str
    contracts: dict[str, JsonObject]  # by digest
    description: str
    made_by: str

    @property
    def plan(self) -> str:
        return digest_plan(self.contracts, self.made_by)

    @property
    def shown(self) -> list[JsonObject]:
        """Its tools by name; of very many, some at even distances."""
        ordered = sorted(self.contracts.values(), key=lambda c: (c["name"], json.dumps(c)))
        if len(ordered) <= MOST_TOOLS:
            return ordered
        return [
            ordered[place * (len(ordered) - 1) // (MOST_TOOLS - 1)] for place in range(MOST_TOOLS)
        ]


def digest_plan(names: Iterable[str], made_by: str) -> str:
    return digest([sorted(names), made_by])


def ask_all(
    servers: Sequence[SummaryRequest], llm: LLM, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """The rows of all servers, in their order."""
    workers = llm.role(ROLE).concurrency
    return run_batch(
        servers,
        partial(_ask_one, llm),
        llm,
        fail=make_failed_row,
        workers=workers,
        stage="summaries",
        progress=progress,
    )


async def _ask_one(llm: LLM, server: SummaryRequest) -> dict[str, Any]:
    """One row, whatever its outcome. Raises LLMError for faults of the settings only."""
    role, prompt, tools = llm.role(ROLE), read_prompt(PROMPT), server.shown
    row = make_row(server, provider=role.provider, model=role.model)
    row |= {"prompt": prompt.digest, "tools_shown": len(tools)}
    values = {
        "server": make_readable(server.server_id),
        "description": server.description or "none",
        "tools": "\n".join(map(_describe_tool, tools)),
        "shown": f"{len(tools)} of the server's {len(server.contracts)} tools are shown.",
    }
    try:
        messages = prompt.make_messages(mark=make_marker(*values.values()), **values)
        reply = await llm.complete(ROLE, messages, schema=ServerSummary, seed=_SEED)
    except (LLMError, BudgetExceeded) as error:
        if isinstance(error, LLMError) and error.kind in ("unknown_role", "no_provider"):
            raise
        kind = error.kind if isinstance(error, LLMError) else "budget"
        status = PENDING if kind == PENDING else "failed"
        return {**row, "status": status, "error_kind": kind, "hint": str(error)[:300]}
    row |= {
        "model": reply.model,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "usd": reply.usd,
    }
    printable = "".join(char if char.isprintable() else " " for char in reply.value.summary)
    text = " ".join(printable.split())[:_LONGEST_SUMMARY]
    if (order := find_order(text)) is not None:
        hint = f"{order}; the answer is kept in the ledger; look at the tools' texts"
        return {**row, "status": "failed", "error_kind": "suspicious", "hint": hint[:300]}
    return {**row, "status": "ok", "summary": text}


def make_row(server: SummaryRequest, **by: str) -> dict[str, Any]:
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


def make_failed_row(server: SummaryRequest, hint: str) -> dict[str, Any]:
    """The row of a server whose summary nobody foresaw to fail."""
    return {**make_row(server), "status": "failed", "error_kind": INTERNAL, "hint": hint}


def _describe_tool(contract: Contract) -> str:
    about = " ".join(str(contract.get("description") or contract.get("title") or "").split())
    takes = ", ".join(name for name, _ in iterate_parameters(contract))
    line = f"- {contract['name']}({takes[:120]}): {about}"
    return " ".join(line.split())[:_LONGEST_TOOL]


_LONGEST_DESCRIPTION = 2_000  # characters

SUMMARIES = read_table_spec(__file__, "server_summaries")


def make_summaries(
    rows: Iterable[Row],
    descriptions: Mapping[str, str],
    llm: LLM | None,
    previous: Iterable[Row] = (),
    *,
    progress: Progress | None = None,
) -> tuple[list[dict[str, Any]], RowPlan]:
    """Rows of SUMMARIES, one per server, and what was made, kept and dropped of them.

    `rows`: clear contracts, of any number of marketplaces;
    `descriptions`: what listings say of a server. Without `llm`, or where its generator is offline,
    the summary is read from the contracts. Raises LLMError for faults of
    the settings only.
    """
    llm = _drop_offline(llm)
    servers, previous_rows, due = _plan_summaries(rows, descriptions, llm, previous)
    requests = [servers[name] for name in due.due]
    written = (
        ask_all(requests, llm, progress)
        if llm
        else [
            try_item(partial(_summarise_offline, request), partial(make_failed_row, request))
            for request in requests
        ]
    )
    unchanged = [previous_rows[name] for name in due.unchanged]
    fresh = [_keep_text(row, previous_rows.get(row["server_id"])) for row in written]
    return SUMMARIES.frame([*unchanged, *fresh]).to_dicts(), due


def count_due_summaries(
    rows: Iterable[Row], descriptions: Mapping[str, str], llm: LLM, previous: Iterable[Row]
) -> int:
    """How many servers a model is asked about; 0 where the generator is offline."""
    asks = _drop_offline(llm) is not None
    return len(_plan_summaries(rows, descriptions, llm, previous)[2].due) if asks else 0


def _drop_offline(llm: LLM | None) -> LLM | None:
    return llm if llm is not None and llm.role(ROLE).model != OFFLINE else None


def _plan_summaries(
    rows: Iterable[Row], descriptions: Mapping[str, str], llm: LLM | None, previous: Iterable[Row]
) -> tuple[dict[str, SummaryRequest], dict[str, dict[str, Any]], RowPlan]:
    """(server -> request, server -> its last row, what is due)."""
    previous_rows = {row["server_id"]: dict(row) for row in previous}
    contracts: dict[str, dict[str, JsonObject]] = defaultdict(dict)
    for row in rows:
        contracts[row["server_id"]][row["contract_digest"]] = read_contract(row)
    servers = {}
    for name in sorted(contracts):
        description = " ".join((descriptions.get(name) or "").split())[:_LONGEST_DESCRIPTION]
        # A description stands in no contract, so no scan of tools has read it.
        description = "" if find_order(description) else description
        servers[name] = SummaryRequest(
            name, contracts[name], description, digest(_describe_maker(llm, description))
        )
    made_of = {
        name: digest_plan(json.loads(row["contracts"]), row["made_by"])
        for name, row in previous_rows.items()
        if row["contracts"]  # absent in rows of an older schema
    }
    failed = {name for name, row in previous_rows.items() if row["status"] != "ok"}
    wanted = {name: server.plan for name, server in servers.items()}
    return servers, previous_rows, plan_keys(made_of, wanted, retry=failed)


def find_summary_flaws(rows: Sequence[Row], floor: float = 0.5) -> list[str]:
    """The audit's question: are too many servers without any summary?"""
    due = [row for row in rows if row["status"] != PENDING]
    empty = [row for row in due if not row["summary"]]
    if len(empty) <= floor * len(due):
        return []
    why = tell_failure(empty[0]["error_kind"], empty[0]["hint"])
    first = f"{empty[0]['server_id']}: {why}"
    return [f"{len(empty)} of {len(due)} servers have no summary, e.g. {first}"]


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


def _summarise_offline(server: SummaryRequest) -> dict[str, Any]:
    text = write_summary(make_readable(server.server_id), list(server.contracts.values()))
    row = make_row(server, provider=OFFLINE, model=get_offline_version())
    return {**row, "summary": text, "status": "ok"}


def _keep_text(row: dict[str, Any], before: Row | None) -> dict[str, Any]:
    """A failed summary keeps the last one: an old text finds its server, an empty one does not."""
    if row["status"] == "ok" or before is None:
        return row
    return {**row, "summary": before["summary"]}
