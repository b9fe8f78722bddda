"""Judges every pair that the rules did not reject: a score and a verdict."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from assets.synthesis.judging.rules_judge import CRITERIA, judge_by_rules
from assets.synthesis.offline.provider import OfflineProvider
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.role_schemas import JudgeOpinion
from assets.synthesis.tables import SINGLE, dump_text, reaches_judge, read_goldens
from warehouse.item_failure import INTERNAL
from warehouse.json_types import Contract, Json, JsonObject, Row
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, OFFLINE, AnswerPending, LLMError, ModelReply, run_batch
from warehouse.llm.roles import Message
from warehouse.progress import Progress
from warehouse.storage.digest import digest

_CONTRACT_CAP = 24_000  # characters of the own contract; the longest real one has 61,000
_OTHERS, _OTHER_CAP = 12, 400  # tools beside it, and characters of each one's description
_TALK_CAP = 16_000


class NoContract(ValueError):
    """A contract that the row stands on is not among those at hand."""


@dataclass(frozen=True)
class JudgeView:
    """`words` fill the prompt; `meta` is what the offline judge reads (`role_schemas.py`)."""

    words: dict[str, str]
    meta: dict[str, Json]


def make_view(row: Row, contracts: Mapping[str, Contract]) -> JudgeView:
    """The view of a row of PAIRS. Raises NoContract; ValueError where a column is no JSON."""
    own, calls = row["contract_digest"], read_goldens(row)
    called = sorted({call.contract_digest for call in calls} - {own})
    if absent := [digest for digest in (own, *called) if digest not in contracts]:
        hint = "the snapshot that wrote the pair is gone or held; compose the tool again"
        raise NoContract(f"{absent[0]} is not among the clear contracts; {hint}")
    offered = [item for item in json.loads(row.get("offered") or "[]") if item in contracts]
    shown = {digest: contracts[digest] for digest in (own, *called, *offered)}
    beside = [digest for digest in shown if digest != own][: len(called) + _OTHERS]
    others = [
        _dump(shown[digest])[:_CONTRACT_CAP] if digest in called else _shorten(shown[digest])
        for digest in beside
    ]
    talk = [_dump(message) for message in json.loads(row.get("messages") or "[]")]
    texts = {
        "contract": _dump(shown[own])[:_CONTRACT_CAP],
        "others": "\n".join(others) or "(none)",
        "instruction": str(row.get("instruction")),
        "calls": _dump([{"tool": call.tool, "arguments": call.arguments} for call in calls]),
        "conversation": "\n".join(talk)[:_TALK_CAP] or "(the request and the calls above)",
    }
    task = row.get("task") or SINGLE
    words = {**texts, "task": str(task), "marker": make_marker(*texts.values())}
    read_by_rules = {name: row.get(name) for name in ("instruction", "messages", "calls", "basis")}
    read_by_rules |= {"contract_digest": own, "task": task, "offered": dump_text(list(shown))}
    return JudgeView(words, {"row": read_by_rules, "contracts": shown})


def _shorten(contract: Contract) -> str:
    description = str(contract.get("description") or "")[:_OTHER_CAP]
    return _dump({"name": contract.get("name"), "description": description})


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


_AT_ONCE = 64
# Whoever scores by the rubric may forget its last rule; these bind the overall score.
_BINDING = ("relevance", "completeness", "correctness", "realism")


def make_offline_provider() -> OfflineProvider:
    """The provider of all offline roles: generator, caller and judge."""
    return OfflineProvider({"judge": judge_by_rules})


def get_judge_name(llm: LLM) -> str:
    """Who judges, as the row says it."""
    model = llm.role("judge").model
    return "offline:rules" if model == OFFLINE else f"model:{model}"


def count_votes(llm: LLM, policy: SynthesisPolicy) -> int:
    """How often a row is asked for: rules say the same every time, so they vote once."""
    return 1 if llm.role("judge").model == OFFLINE else policy.judge_votes


def plan_judgements(
    rows: Iterable[JsonObject], llm: LLM, policy: SynthesisPolicy
) -> dict[str, str]:
    """pair_id -> digest of everything that decides its judgement, for pairs worth judging."""
    how = _describe_judge(llm, policy)
    return {row["pair_id"]: _digest_plan(row, how) for row in rows if reaches_judge(row)}


def _describe_judge(llm: LLM, policy: SynthesisPolicy) -> list[Json]:
    how = [policy.seed, count_votes(llm, policy), policy.judge_threshold]
    return [read_prompt("judge").digest, llm.identity("judge"), *how]


_SAYS = ("contract_digest", "task", "instruction", "arguments", "calls", "messages", "offered")


def _digest_plan(row: Row, how: list[Json]) -> str:
    return digest([[row.get(name) for name in _SAYS], how])


def judge(
    rows: Sequence[JsonObject],
    contracts: Mapping[str, Contract],
    llm: LLM,
    policy: SynthesisPolicy,
    *,
    progress: Progress | None = None,
) -> list[dict[str, Json]]:
    """One row of JUDGEMENTS per row that passes; contracts: by digest. One whose answer comes by
    batch is `pending`, one without a usable answer `failed`. Of several votes all must come."""
    due, how = [row for row in rows if reaches_judge(row)], _describe_judge(llm, policy)

    async def judge_one(row: Row) -> dict[str, Json]:
        judgement = await _judge_row(row, contracts, llm, policy)
        return {**judgement, "plan_digest": _digest_plan(row, how)}

    def fail(row: Row, hint: str) -> dict[str, Json]:
        judgement = {**_make_blank(row, llm, policy), "error_kind": INTERNAL, "hint": hint}
        return {**judgement, "plan_digest": _digest_plan(row, how)}

    return run_batch(
        due, judge_one, llm, fail=fail, workers=_AT_ONCE, stage="judgements", progress=progress
    )


async def _judge_row(
    row: Row, contracts: Mapping[str, Contract], llm: LLM, policy: SynthesisPolicy
) -> dict[str, Json]:
    blank = _make_blank(row, llm, policy)
    try:
        view = make_view(row, contracts)
        messages = read_prompt("judge").make_messages(**view.words)
        replies = await _ask_votes(llm, messages, view.meta, policy)
    except NoContract as error:
        return {**blank, "error_kind": "no_contract", "hint": str(error)[:300]}
    except AnswerPending as error:
        why = {"error_kind": error.kind, "hint": str(error)[:300]}
        return {**blank, **why, "status": error.kind, "retry_at": error.retry_at or None}
    except (LLMError, BudgetExceeded, ValueError) as error:
        kind = "budget" if isinstance(error, BudgetExceeded) else getattr(error, "kind", "bad_row")
        return {**blank, "error_kind": kind, "hint": str(error)[:300]}
    return {**blank, **_count_votes(replies, policy.judge_threshold), "status": "ok"}


async def _ask_votes(
    llm: LLM, messages: Sequence[Message], meta: JsonObject, policy: SynthesisPolicy
) -> list[ModelReply[JudgeOpinion]]:
    """One reply a vote. Where one waits for a batch the others are asked too."""
    replies, waiting = [], None
    for seed in range(policy.seed, policy.seed + count_votes(llm, policy)):
        try:
            replies.append(
                await llm.complete("judge", messages, schema=JudgeOpinion, seed=seed, meta=meta)
            )
        except AnswerPending as error:
            waiting = error
    if waiting:
        raise waiting
    return replies


def _make_blank(row: Row, llm: LLM, policy: SynthesisPolicy) -> dict[str, Json]:
    return {
        **{name: row.get(name) for name in ("pair_id", "marketplace", "server_id", "tool")},
        "contract_digest": row["contract_digest"],
        "judge": get_judge_name(llm),
        "provider": llm.role("judge").provider,
        "model": llm.role("judge").model,
        "prompt_digest": read_prompt("judge").digest,
        "threshold": policy.judge_threshold,
        "usd": 0.0,
        "status": "failed",
    }


def cap_overall(opinion: JudgeOpinion) -> float:
    """The overall score, held to the rubric's last rule: at most one above each binding one."""
    return min([opinion.score, *(getattr(opinion, name) + 1 for name in _BINDING)])


def _count_votes(replies: Sequence[ModelReply[JudgeOpinion]], threshold: float) -> dict[str, Json]:
    scores = [cap_overall(reply.value) for reply in replies]
    mean = round(sum(scores) / len(scores), 4)
    each = {
        name: round(sum(getattr(reply.value, name) for reply in replies) / len(replies), 4)
        for name in CRITERIA
    }
    return {
        "model": replies[-1].model,
        "score": mean,
        "votes": len(scores),
        "spread": max(scores) - min(scores),
        "scores": dump_text(each),
        "verdict": "accept" if mean >= threshold else "reject",
        "reasons": " | ".join(reply.value.reasons for reply in replies)[:2000],
        "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
        "completion_tokens": sum(reply.completion_tokens for reply in replies),
        "usd": round(sum(reply.usd for reply in replies), 9),
    }
