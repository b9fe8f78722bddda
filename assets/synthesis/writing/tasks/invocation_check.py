"""The invocation check: would somebody who sees hard look-alikes too pick the tool that was meant?

    request + own tool + rivals, shuffled -> checker_a, checker_b -> right, one, wrong or none

Tools' texts are untrusted: each stands between markers that carry a digest of all that is
shown, so no contract can write one of them.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets.synthesis.common.role_schemas import Choice
from assets.synthesis.common.tables import read_contract
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.verify.finding import Finding
from assets.synthesis.writing.receipts import make_receipt
from warehouse.json_types import Json, JsonObject
from warehouse.llm.client import LLM, LLMError, Pending

CHECKERS = ("checker_a", "checker_b")
STEP = "invocation_check"
# Characters of one tool in a prompt: 99% of real contracts are shorter than this.
_LONGEST = 8000


@dataclass(frozen=True)
class Checked:
    """What the checkers picked. `picks`: role -> contract digest, or None for "no tool".

    `verdict`: right (every checker that answered picked the tool), one (a single one of two did),
    wrong (none did, some picked another), none (none did, all say that no tool serves).
    `independent`: whether two different models answered; the same offline provider asked twice
    counts as one opinion. `failed`: role -> error kind of a checker that gave no answer.
    """

    candidates: list[str]
    picks: dict[str, str | None]
    verdict: str
    steps: list[dict[str, Json]]
    independent: bool
    failed: dict[str, str]

    @property
    def findings(self) -> list[Finding]:
        """The flaw that a verdict means: certain only when two models agree on other tools.

        One opinion asked twice rejects nothing (the offline checkers pick otherwise on one good
        direct request in nine), and its "no tool" says only that it recognises none.
        """
        if self.verdict not in ("wrong", "none") or not (
            self.independent or self.verdict == "wrong"
        ):
            return []
        chosen = sorted({pick[:12] for pick in self.picks.values() if pick}) or ["no tool"]
        reason = f"{len(self.picks)} of {len(CHECKERS)} checkers pick {', '.join(chosen)} instead"
        agreed = self.verdict == "wrong" and len(self.picks) == len(CHECKERS)
        return [Finding("picked_another_tool", "", reason, certain=agreed and self.independent)]

    def as_json(self) -> dict[str, Json]:
        """What the row's column `checks` holds."""
        facts = {"candidates": self.candidates, "picks": self.picks, "verdict": self.verdict}
        return {**facts, "independent": self.independent, "failed": self.failed}


async def check_invocation(
    llm: LLM, instruction: str, own: JsonObject, rivals: Sequence[JsonObject], *, seed: int
) -> Checked:
    """Asks both checkers which of `own` and `rivals` (snapshot rows) the request needs.

    Each sees the tools in another order, drawn from `seed` and the role. One checker that fails is
    named in `failed`; when both fail the first one's LLMError is raised, as are Pending (once both
    were asked) and BudgetExceeded.
    """
    shown = {row["contract_digest"]: read_contract(row) for row in [*rivals, own]}
    orders = {role: _shuffle(sorted(shown), seed, role) for role in CHECKERS}
    picks: dict[str, str | None] = {}
    steps: list[dict[str, Json]] = []
    errors: dict[str, LLMError] = {}
    for role, order in orders.items():
        try:
            contracts = [shown[digest] for digest in order]
            messages = make_choice_messages(contracts, instruction)
            meta = {"contracts": contracts, "instruction": instruction}
            reply = await llm.complete(role, messages, schema=Choice, seed=seed, meta=meta)
        except LLMError as error:
            if error.kind in ("unknown_role", "no_provider"):
                raise
            errors[role] = error
            continue
        steps.append(make_receipt(STEP, role, reply, seed))
        number = reply.value.tool
        picks[role] = order[number - 1] if 0 < number <= len(order) else None
    if waiting := [error for error in errors.values() if isinstance(error, Pending)]:
        raise waiting[0]
    if not picks:
        raise next(iter(errors.values()))
    return Checked(
        orders[CHECKERS[0]],
        picks,
        _find_verdict(picks, own["contract_digest"]),
        steps,
        llm.identity(CHECKERS[0]) != llm.identity(CHECKERS[1]),
        {role: error.kind for role, error in errors.items()},
    )


def _shuffle(digests: list[str], seed: int, role: str) -> list[str]:
    random.Random(f"{seed}:{role}").shuffle(digests)
    return digests


def _find_verdict(picks: Mapping[str, str | None], own: str) -> str:
    right = sum(pick == own for pick in picks.values())
    if right:
        return "right" if right == len(picks) else "one"
    return "wrong" if any(picks.values()) else "none"


def make_choice_messages(contracts: Sequence[JsonObject], instruction: str) -> list[dict[str, str]]:
    """The prompt `choose` over these tools, in this order."""
    texts = [json.dumps(contract, ensure_ascii=False)[:_LONGEST] for contract in contracts]
    mark = make_marker(*texts, instruction)
    tools = "\n\n".join(
        f"BEGIN {mark} tool {number}\n{text}\nEND {mark} tool {number}"
        for number, text in enumerate(texts, 1)
    )
    return read_prompt("choose").make_messages(
        mark=mark, count=str(len(texts)), tools=tools, instruction=instruction
    )
