"""Asking the generator for the summaries of servers: what a prompt shows, a row for each answer."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from assets.contracts.canonical import iterate_parameters
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.summaries.offline import make_readable
from assets.synthesis.verify.checks.injected_orders import find_order
from warehouse.item_failure import INTERNAL
from warehouse.json_types import Contract, JsonObject
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.batch import run_batch
from warehouse.llm.client import LLM, LLMError
from warehouse.llm.roles import PENDING
from warehouse.progress import Progress
from warehouse.storage.digest import digest

PROMPT, ROLE = "summarise", "generator"
MOST_TOOLS = 60  # shown in one prompt, spread evenly over their names
_LONGEST_TOOL, _LONGEST_SUMMARY = 400, 1_500  # characters
_SEED = 7


class Summary(BaseModel):
    """The generator's answer to `summarise`."""

    summary: str = Field(min_length=20, max_length=4000)


@dataclass(frozen=True)
class Server:
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
        listed = sorted(self.contracts.values(), key=lambda c: (c["name"], json.dumps(c)))
        if len(listed) <= MOST_TOOLS:
            return listed
        return [
            listed[place * (len(listed) - 1) // (MOST_TOOLS - 1)] for place in range(MOST_TOOLS)
        ]


def digest_plan(names: Iterable[str], made_by: str) -> str:
    return digest([sorted(names), made_by])


def ask_all(
    servers: Sequence[Server], llm: LLM, progress: Progress | None = None
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


async def _ask_one(llm: LLM, server: Server) -> dict[str, Any]:
    """One row, whatever its outcome. Raises LLMError for faults of the settings only."""
    role, asked, shown = llm.role(ROLE), read_prompt(PROMPT), server.shown
    row = make_row(server, provider=role.provider, model=role.model)
    row |= {"prompt": asked.digest, "tools_shown": len(shown)}
    values = {
        "server": make_readable(server.server_id),
        "description": server.description or "none",
        "tools": "\n".join(map(_describe_tool, shown)),
        "shown": f"{len(shown)} of the server's {len(server.contracts)} tools are shown.",
    }
    try:
        messages = asked.make_messages(mark=make_marker(*values.values()), **values)
        reply = await llm.complete(ROLE, messages, schema=Summary, seed=_SEED)
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
    text = _make_plain(reply.value.summary)
    if (order := find_order(text)) is not None:
        hint = f"{order}; the answer is kept in the ledger; look at the tools' texts"
        return {**row, "status": "failed", "error_kind": "suspicious", "hint": hint[:300]}
    return {**row, "status": "ok", "summary": text}


def make_row(server: Server, **by: str) -> dict[str, Any]:
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


def make_failed_row(server: Server, hint: str) -> dict[str, Any]:
    """The row of a server whose summary nobody foresaw to fail."""
    return {**make_row(server), "status": "failed", "error_kind": INTERNAL, "hint": hint}


def _describe_tool(contract: Contract) -> str:
    """One tool as a prompt shows it."""
    about = " ".join(str(contract.get("description") or contract.get("title") or "").split())
    takes = ", ".join(name for name, _ in iterate_parameters(contract))
    line = f"- {contract['name']}({takes[:120]}): {about}"
    return " ".join(line.split())[:_LONGEST_TOOL]


def _make_plain(text: str) -> str:
    """A model's answer as one paragraph of visible characters."""
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text[:_LONGEST_SUMMARY]
