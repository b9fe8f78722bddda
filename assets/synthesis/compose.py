"""Pairs: for each contract a few requests, and the call that answers each.

    generator -> requests -> caller -> arguments -> rules (verify.py) -> one row per pair

What belongs here: the order of the steps, the plan, and one row for whatever became of a pair.
What does not: prompts (`prompts/`), the client (`warehouse/effects/llm.py`), judging (`judge.py`).
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from assets.synthesis.answers import Call, Draft, Requests
from assets.synthesis.edition import rules_edition
from assets.synthesis.offline import STYLES
from assets.synthesis.prompts import prompt
from assets.synthesis.rows import PAIRS, SINGLE, contract_of, pair_id, text_of, tool_key
from assets.synthesis.twins import near_duplicates
from assets.synthesis.verify import Verification, verify
from warehouse.digest import digest
from warehouse.effects.ledger import BudgetExceeded
from warehouse.effects.llm import LLM, LLMError, Reply
from warehouse.progress import Progress

__all__ = ["PAIRS", "compose", "compose_async", "wanted"]

Json = Any
_TOOLS_AT_ONCE = 48  # tasks, not requests: each role has its own limit on those
_LONGEST_CONTRACT = 24_000  # characters in a prompt: the longest real contract has 20,000


def wanted(
    contract_rows: Iterable[Mapping[str, Json]], llm: LLM, *, k: int = 3, seed: int = 0
) -> dict[str, str]:
    """server_id/tool -> digest of everything that decides its pairs: what `warehouse.plan` wants.

    Only what can change a row is in it: contract, prompts, rules, models, seed and k. New rules
    over old answers cost nothing: the answers are in the ledger.
    """
    how = _how(llm, k, seed)
    return {tool_key(row): digest([row["contract_digest"], how]) for row in contract_rows}


def _how(llm: LLM, k: int, seed: int) -> dict[str, Json]:
    return {
        "prompts": [prompt("generate").digest, prompt("call").digest],
        "rules": rules_edition(),
        "roles": [llm.identity("generator"), llm.identity("caller")],
        "k": k,
        "seed": seed,
    }


def compose(
    contract_rows: Sequence[Mapping[str, Json]],
    llm: LLM,
    *,
    k: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[dict[str, Json]]:
    """`compose_async`, run to its end in an event loop of its own."""
    return asyncio.run(compose_async(contract_rows, llm, k=k, seed=seed, progress=progress))


async def compose_async(
    contract_rows: Sequence[Mapping[str, Json]],
    llm: LLM,
    *,
    k: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[dict[str, Json]]:
    """`k` rows of `PAIRS` for each contract row, in the order given.

    A contract row has server_id, tool, contract_digest, contract (JSON text or mapping) and
    optionally marketplace, recipe_digest, license. What fails (no answer, budget, a bad answer)
    is a row with status `failed`, an error_kind and a hint; nothing is dropped and nothing raised
    but settings (LLMError unknown_role, no_provider) and a broken ledger.
    """
    plans = wanted(contract_rows, llm, k=k, seed=seed)
    window, done = asyncio.Semaphore(_TOOLS_AT_ONCE), 0

    async def one(row: Mapping[str, Json]) -> list[dict[str, Json]]:
        nonlocal done
        async with window:
            made = await _pairs_of(row, plans[tool_key(row)], llm, k, seed)
        done += 1
        if progress is not None and (done % 25 == 0 or done == len(contract_rows)):
            figures = {name: llm.counts[name] for name in ("asked", "cached", "failed")}
            progress.update("pairs", done, len(contract_rows), usd=round(llm.usd, 4), **figures)
        return made

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(row)) for row in contract_rows]
    finally:
        await llm.aclose()
    return [{**pair, "pair_id": pair_id(pair)} for task in tasks for pair in task.result()]


def _golden(row: Mapping[str, Json], arguments: dict[str, Json]) -> dict[str, Json]:
    own = {name: row[name] for name in ("server_id", "tool", "contract_digest")}
    return {**own, "arguments": arguments}


async def _pairs_of(
    row: Mapping[str, Json], plan_digest: str, llm: LLM, k: int, seed: int
) -> list[dict[str, Json]]:
    blank = [_blank(row, plan_digest, index, llm, seed) for index in range(k)]
    try:
        contract = contract_of(row)
        shown = json.dumps(contract, ensure_ascii=False, indent=1)
    except (ValueError, TypeError) as error:
        return [{**b, **_failed("bad_contract", f"{error}", "look at the snapshot")} for b in blank]
    if len(shown) > _LONGEST_CONTRACT:
        shown = _shortened(contract)
    try:
        drafts = await _requests(contract, shown, llm, k, seed)
    except (LLMError, BudgetExceeded, ValueError) as error:
        return [{**b, **_of(error)} for b in blank]
    rows = []
    for index, pair in enumerate(blank):
        if index >= len(drafts.value.requests):
            found = f"{len(drafts.value.requests)} requests of {k}"
            rows.append({**pair, **_failed("too_few", found, "raise max_tokens of the generator")})
            continue
        draft = drafts.value.requests[index]
        rows.append({**pair, **await _pair(row, contract, shown, draft, drafts, llm, k, seed)})
    return _without_twins(rows)


async def _requests(
    contract: dict[str, Json], shown: str, llm: LLM, k: int, seed: int
) -> Reply[Requests]:
    kinds = [STYLES[index % len(STYLES)] for index in range(k)]
    messages = prompt("generate").messages(contract=shown, count=str(k), kinds=", ".join(kinds))
    meta = {"contract": contract, "count": k}
    return await llm.complete("generator", messages, schema=Requests, seed=seed, meta=meta)


async def _pair(
    row: Mapping[str, Json],
    contract: dict[str, Json],
    shown: str,
    draft: Draft,
    drafts: Reply[Requests],
    llm: LLM,
    k: int,
    seed: int,
) -> dict[str, Json]:
    """The columns of one pair whose request is written."""
    written: dict[str, Json] = {
        "kind": draft.kind if draft.kind in STYLES else "direct",
        "instruction": draft.instruction.strip(),
        "provider": drafts.provider,
        "model": drafts.model,
        "prompt_tokens": drafts.prompt_tokens // k,
        "completion_tokens": drafts.completion_tokens // k,
        "usd": round(drafts.usd / k, 9),
    }
    messages = prompt("call").messages(contract=shown, instruction=draft.instruction)
    meta = {"values": draft.values, "instruction": draft.instruction}
    try:
        call = await llm.complete("caller", messages, schema=Call, seed=seed, meta=meta)
        arguments = text_of(call.value.arguments)
    except (LLMError, BudgetExceeded, ValueError) as error:
        return {**written, **_of(error)}
    verdict = verify(contract, draft.instruction, call.value.arguments, server=row["server_id"])
    return {
        **written,
        "arguments": arguments,
        "calls": text_of([_golden(row, call.value.arguments)]),
        "prompt_tokens": written["prompt_tokens"] + call.prompt_tokens,
        "completion_tokens": written["completion_tokens"] + call.completion_tokens,
        "usd": round(written["usd"] + call.usd, 9),
        "status": "ok",
        **_verdict(verdict),
    }


def _verdict(verification: Verification) -> dict[str, str]:
    flaws = [vars(finding) for finding in verification.findings]
    return {"verdict": verification.verdict, "flaws": text_of(flaws)}


def _without_twins(rows: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Within one tool a request that nearly repeats an earlier one is rejected; it stays a row."""
    made = [row for row in rows if row["status"] == "ok"]
    for row, twin in zip(made, near_duplicates(r["instruction"] for r in made), strict=True):
        if twin is not None:
            reason = f"nearly repeats request {made[twin]['index']}"
            flaw = {"kind": "near_duplicate", "path": "", "reason": reason, "certain": True}
            row["flaws"] = text_of([*json.loads(row["flaws"]), flaw])
            row["verdict"] = "reject"
    return rows


def _blank(
    row: Mapping[str, Json], plan_digest: str, index: int, llm: LLM, seed: int
) -> dict[str, Json]:
    generator = llm.role("generator")
    return {
        **{name: row.get(name) for name in ("marketplace", "recipe_digest", "license")},
        **{name: row[name] for name in ("server_id", "tool", "contract_digest")},
        "plan_digest": plan_digest,
        "index": index,
        "kind": STYLES[index % len(STYLES)],
        "provider": generator.provider,
        "model": generator.model,
        "task": SINGLE,
        "seed": seed,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "usd": 0.0,
        "status": "failed",
        "flaws": "[]",
    }


def _failed(kind: str, found: str, hint: str) -> dict[str, str]:
    return {"status": "failed", "error_kind": kind, "hint": f"{found[:200]}; {hint}"}


def _of(error: Exception) -> dict[str, str]:
    if isinstance(error, LLMError):
        if error.kind in ("unknown_role", "no_provider"):
            raise error
        return _failed(error.kind, error.found, error.hint)
    if isinstance(error, BudgetExceeded):
        return _failed("budget", str(error), "raise budget_usd and run again")
    return _failed("bad_value", str(error), "the contract or the answer holds a value JSON cannot")


def _shortened(contract: Mapping[str, Json]) -> str:
    """A contract that fits a prompt: nested schemas lose their insides, names and types stay."""
    schema = dict(contract.get("inputSchema") or {})
    slim = {
        name: {key: value for key, value in (member or {}).items() if key in _KEPT}
        for name, member in (schema.get("properties") or {}).items()
        if isinstance(member, Mapping)
    }
    shown = {**contract, "inputSchema": {**schema, "properties": slim}, "outputSchema": None}
    return json.dumps(shown, ensure_ascii=False)[:_LONGEST_CONTRACT]


_KEPT: set[Literal["type", "description", "enum", "default", "format"]] = {
    "type", "description", "enum", "default", "format",
}  # fmt: skip
