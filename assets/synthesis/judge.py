"""Judgements: a score and a verdict for every pair that the rules did not reject.

What belongs here: asking the judge role, the threshold, and the row with its receipt.
What does not: the rubric's text (`prompts/judge.md`), the offline rules (`rubric.py`), judging the
judge (`mutants.py`).

A set is called judged by a model only when a model judged it: `judge` says `offline:rules` or
`model:<name>`.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assets.synthesis.answers import Opinion
from assets.synthesis.offline import Offline
from assets.synthesis.prompts import prompt
from assets.synthesis.rows import JUDGEMENTS, text_of
from assets.synthesis.rubric import CRITERIA, rule_judgement
from warehouse.digest import digest
from warehouse.effects.ledger import BudgetExceeded
from warehouse.effects.llm import LLM, OFFLINE, LLMError, Reply
from warehouse.progress import Progress

__all__ = ["JUDGEMENTS", "judge", "judge_async", "offline_provider", "wanted_judgements"]

Json = Any
THRESHOLD = 6.0
_AT_ONCE = 64


def offline_provider() -> Offline:
    """The provider of all offline roles: generator, caller and judge."""
    return Offline({"judge": rule_judgement})


def judge_name(llm: LLM) -> str:
    """Who judges, as the row says it."""
    model = llm.role("judge").model
    return "offline:rules" if model == OFFLINE else f"model:{model}"


def wanted_judgements(
    pair_rows: Iterable[Mapping[str, Json]],
    llm: LLM,
    *,
    seed: int = 0,
    threshold: float = THRESHOLD,
) -> dict[str, str]:
    """pair_id -> digest of everything that decides its judgement, for pairs worth judging."""
    how = _how(llm, seed, threshold)
    return {row["pair_id"]: _plan(row, how) for row in pair_rows if judgeable(row)}


def judgeable(row: Mapping[str, Json]) -> bool:
    """Whether a pair reaches the judge: it is whole, and no rule rejected it."""
    return row["status"] == "ok" and row["verdict"] != "reject"


def _how(llm: LLM, seed: int, threshold: float) -> list[Json]:
    return [prompt("judge").digest, llm.identity("judge"), seed, threshold]


def _plan(row: Mapping[str, Json], how: list[Json]) -> str:
    return digest([row["contract_digest"], row["instruction"], row["arguments"], how])


def judge(
    pair_rows: Sequence[Mapping[str, Json]],
    contracts: Mapping[str, Mapping[str, Json]],
    llm: LLM,
    *,
    seed: int = 0,
    threshold: float = THRESHOLD,
    progress: Progress | None = None,
) -> list[dict[str, Json]]:
    """`judge_async`, run to its end in an event loop of its own."""
    return asyncio.run(
        judge_async(pair_rows, contracts, llm, seed=seed, threshold=threshold, progress=progress)
    )


async def judge_async(
    pair_rows: Sequence[Mapping[str, Json]],
    contracts: Mapping[str, Mapping[str, Json]],
    llm: LLM,
    *,
    seed: int = 0,
    threshold: float = THRESHOLD,
    progress: Progress | None = None,
) -> list[dict[str, Json]]:
    """One row of `JUDGEMENTS` for each judgeable pair; `contracts`: contract_digest -> contract.

    A judge that gives no usable answer is a row with status `failed` and no verdict: the pair is
    not accepted, and is asked for again when the plan says so.
    """
    rows = [row for row in pair_rows if judgeable(row)]
    how, done = _how(llm, seed, threshold), 0
    window = asyncio.Semaphore(_AT_ONCE)

    async def one(row: Mapping[str, Json]) -> dict[str, Json]:
        nonlocal done
        async with window:
            made = await _judgement(
                row, contracts.get(row["contract_digest"]), llm, seed, threshold
            )
        done += 1
        if progress is not None and (done % 100 == 0 or done == len(rows)):
            progress.update("judgements", done, len(rows), usd=round(llm.usd, 4))
        return {**made, "plan_digest": _plan(row, how)}

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(row)) for row in rows]
    finally:
        await llm.aclose()
    return [task.result() for task in tasks]


async def _judgement(
    row: Mapping[str, Json],
    contract: Mapping[str, Json] | None,
    llm: LLM,
    seed: int,
    threshold: float,
) -> dict[str, Json]:
    blank: dict[str, Json] = {
        **{name: row.get(name) for name in ("pair_id", "marketplace", "server_id", "tool")},
        "contract_digest": row["contract_digest"],
        "judge": judge_name(llm),
        "provider": llm.role("judge").provider,
        "model": llm.role("judge").model,
        "prompt_digest": prompt("judge").digest,
        "usd": 0.0,
        "status": "failed",
    }
    if contract is None:
        hint = "the snapshot that wrote the pair is gone; compose the tool again"
        return {**blank, "error_kind": "no_contract", "hint": hint}
    try:
        reply = await opinion(row, contract, llm, seed)
    except (LLMError, BudgetExceeded, ValueError) as error:
        kind = getattr(
            error, "kind", "budget" if isinstance(error, BudgetExceeded) else "bad_value"
        )
        if kind in ("unknown_role", "no_provider"):
            raise
        return {**blank, "error_kind": kind, "hint": str(error)[:300]}
    said = reply.value
    return {
        **blank,
        "model": reply.model,
        "score": said.score,
        "scores": text_of({name: getattr(said, name) for name in CRITERIA}),
        "verdict": "accept" if said.score >= threshold else "reject",
        "reasons": said.reasons[:1000],
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "usd": reply.usd,
        "status": "ok",
    }


async def opinion(
    row: Mapping[str, Json], contract: Mapping[str, Json], llm: LLM, seed: int
) -> Reply[Opinion]:
    """The judge's opinion of one pair. Raises what `LLM.complete` raises."""
    shown = json.dumps(contract, ensure_ascii=False, indent=1)[:24_000]
    messages = prompt("judge").messages(
        contract=shown, instruction=row["instruction"], arguments=row["arguments"]
    )
    meta = {
        "contract": contract,
        "instruction": row["instruction"],
        "arguments": json.loads(row["arguments"]),
        "server": row.get("server_id") or "",
    }
    return await llm.complete("judge", messages, schema=Opinion, seed=seed, meta=meta)
