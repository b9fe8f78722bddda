"""One request and one call: generate, state what is absent, evolve, call, verify, check.

generator -> (reviser) -> evolver -> (reviser) -> caller -> rules -> checkers -> one row

Two checkers see the request with the right tool and hard look-alikes, shuffled, and pick one. Their
texts are untrusted: each stands between markers that carry a digest of all that is shown, so no
contract can write one of them.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.role_schemas import (
    CallArguments,
    Draft,
    RequestDrafts,
    RewrittenRequest,
    ToolChoice,
)
from assets.synthesis.tables import (
    LOOKALIKE,
    dump_text,
    make_call_message,
    make_golden,
    make_user_message,
    read_contract,
)
from assets.synthesis.verify.pair_checks import PairFinding
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import decide, find_ungrounded, find_worst_grade
from assets.synthesis.verify.words import ABSENT
from assets.synthesis.writing.profiles import (
    DIRECTIONS,
    KINDS,
    draw_directions,
    is_evolved,
    make_rng,
)
from assets.synthesis.writing.row_builder import (
    RowBuilder,
    StepFailed,
    check_values,
    make_receipt,
    make_step_failure,
)
from assets.synthesis.writing.units import Row, WritingUnit, count_rows, list_required
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, AnswerPending, LLMError, ModelReply

CHECKERS = ("checker_a", "checker_b")
STEP = "invocation_check"
AGAIN = "another model or seed may help"
# Characters of one tool in a prompt: 99% of real contracts are shorter than this.
_LONGEST = 8000


@dataclass(frozen=True)
class InvocationCheck:
    """What the checkers picked. `picks`: role -> contract digest, or None for "no tool".

    `verdict`: right (every checker that answered picked the tool), one (a single one of two did),
    wrong (none did, some picked another), none (none did, all say that no tool serves).
    `independent`: whether two different models answered; the same offline provider asked twice
    counts as one opinion. `failed`: role -> error kind of a checker that gave no answer.
    """

    candidates: list[str]
    picks: dict[str, str | None]
    verdict: str
    independent: bool
    failed: dict[str, str]

    @property
    def findings(self) -> list[PairFinding]:
        """The flaw that a verdict means: certain only when two models agree on other tools."""
        doubted = self.verdict == "wrong" or (self.verdict == "none" and self.independent)
        if not doubted:
            return []
        chosen = sorted({pick[:12] for pick in self.picks.values() if pick}) or ["no tool"]
        reason = f"{len(self.picks)} of {len(CHECKERS)} checkers pick {', '.join(chosen)} instead"
        agreed = self.verdict == "wrong" and len(self.picks) == len(CHECKERS)
        return [PairFinding("picked_another_tool", "", reason, certain=agreed and self.independent)]


async def check_invocation(
    llm: LLM, instruction: str, right: JsonObject, rivals: Sequence[JsonObject], *, seed: int
) -> tuple[InvocationCheck, list[dict[str, Json]]]:
    """Asks both checkers which of `right` and `rivals` (snapshot rows) the request needs, each in
    an order of its own; with the receipts. One that fails is in `failed`; of both the first
    LLMError is raised, as are Pending and BudgetExceeded."""
    contracts_by_digest = {row["contract_digest"]: read_contract(row) for row in [*rivals, right]}
    orders: dict[str, list[str]] = {}
    picks: dict[str, str | None] = {}
    receipts: list[dict[str, Json]] = []
    errors: dict[str, LLMError] = {}
    for role in CHECKERS:
        order = orders[role] = sorted(contracts_by_digest)
        random.Random(f"{seed}:{role}").shuffle(order)
        try:
            contracts = [contracts_by_digest[digest] for digest in order]
            messages = make_choice_messages(contracts, instruction)
            meta = {"contracts": contracts, "instruction": instruction}
            reply = await llm.complete(role, messages, schema=ToolChoice, seed=seed, meta=meta)
        except LLMError as error:
            if error.kind in ("unknown_role", "no_provider"):
                raise
            errors[role] = error
            continue
        receipts.append(make_receipt(STEP, role, reply, seed))
        number = reply.value.tool
        picks[role] = order[number - 1] if 0 < number <= len(order) else None
    pending = next((error for error in errors.values() if isinstance(error, AnswerPending)), None)
    if pending or not picks:
        raise pending or next(iter(errors.values()))
    hits = sum(pick == right["contract_digest"] for pick in picks.values())
    verdict = "wrong" if any(picks.values()) else "none"
    if hits:
        verdict = "right" if hits == len(picks) else "one"
    independent = llm.identity(CHECKERS[0]) != llm.identity(CHECKERS[1])
    failed = {role: error.kind for role, error in errors.items()}
    return InvocationCheck(orders[CHECKERS[0]], picks, verdict, independent, failed), receipts


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


Values = dict[str, Json]
MOST_ADDED = 60  # words a step; what grows more is another request, or talk about it


async def state_request(writing: RowBuilder, draft: Draft) -> tuple[str, Values]:
    """The request with every required value in its words."""
    text = writing.set_request("generate", draft.instruction)
    return await _state_values(writing, text, check_values("generate", draft.values))


async def _state_values(
    writing: RowBuilder, text: str, values: Values, lost: Sequence[str] = ()
) -> tuple[str, Values]:
    """Asks the reviser for the values that the rules do not find, and holds it to that."""
    contract = writing.read_contract(writing.unit.own)
    names = [*find_absent(contract, text, values), *lost]
    if not names:
        return text, values
    text, values = await ask_revision(writing, writing.unit.own, text, values, names)
    named_values = {name: values[name] for name in names if name in values}
    if still := find_unsaid(contract, text, named_values):
        # A value it did not tell may stand in the text all the same: the caller will see.
        problem = f"the text still lacks {', '.join(still)}"
        raise StepFailed("revise", "not_stated", problem, AGAIN)
    return text, values


async def ask_revision(
    writing: RowBuilder, row: Row, text: str, values: Values, names: list[str]
) -> tuple[str, Values]:
    """The reviser's text, and the values with those that it told for `names`."""
    names = list(dict.fromkeys(names))
    meta = _describe_request(writing, text, values, absent=names)
    reply = await writing.ask("revise", RewrittenRequest, row, meta)
    revised_values = check_values("revise", reply.value.values)
    revised = {name: revised_values[name] for name in names if name in revised_values}
    return writing.set_request("revise", reply.value.instruction), {**values, **revised}


def _describe_request(
    writing: RowBuilder, text: str, values: Values, **asked: Json
) -> dict[str, Json]:
    """What the reviser and the evolver are told, in the order that keys paid answers."""
    about = {"environment": writing.world, "language": writing.profile["language"]}
    return {"instruction": text, "values": values, **asked, **about}


async def _evolve_request(writing: RowBuilder, text: str, values: Values) -> tuple[str, Values]:
    row = writing.unit.own
    draw = row, writing.unit.task, writing.index, writing.policy
    contract = writing.read_contract(row)
    for direction in draw_directions(*draw) if is_evolved(*draw) else ():
        meta = _describe_request(writing, text, values, direction=direction)
        more = DIRECTIONS[direction]
        reply = await writing.ask("evolve", RewrittenRequest, row, meta, direction=more)
        before, text = text, writing.set_request("evolve", reply.value.instruction)
        added = len(text.split()) - len(before.split())
        if len(text) <= len(before) or added > MOST_ADDED:
            problem = f"{added} words added, expected 10 to 20"
            raise StepFailed("evolve", "not_evolved", problem, AGAIN)
        values = {**values, **check_values("evolve", reply.value.values)}
        missed = find_unsaid(contract, before, values)
        lost = [name for name in find_unsaid(contract, text, values) if name not in missed]
        text, values = await _state_values(writing, text, values, lost)
    return text, values


def find_absent(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The required parameters without a value, or whose value nothing in the text speaks of."""
    return [
        name
        for name in list_required(contract)
        if name not in values or find_unsaid(contract, text, {name: values[name]})
    ]


def find_unsaid(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The values, required or not, that nothing in the text speaks of."""
    request = RequestText(text)
    return [
        name
        for name in values
        if any(find_ungrounded(contract, request, {name: values[name]}))
        and find_worst_grade(name, values[name], request, contract) == ABSENT
    ]


async def write_single(
    unit: WritingUnit, plan: str, llm: LLM, policy: SynthesisPolicy
) -> list[dict[str, Json]]:
    """The rows of a unit `single` or `lookalike`, one for each request asked for."""
    rows = [RowBuilder(unit, plan, index, llm, policy) for index in range(count_rows(unit, policy))]
    shared = RowBuilder(unit, plan, 0, llm, policy)
    try:
        drafts = await ask_requests(shared, rows)
    except StepFailed as failure:
        for row in rows:
            row.prompts, row.shown = dict(shared.prompts), dict(shared.shown)
        return [row.make_row(failure) for row in rows]
    return list(await asyncio.gather(*(_write_row(row, shared, drafts, len(rows)) for row in rows)))


async def ask_requests(writing: RowBuilder, rows: list[RowBuilder]) -> ModelReply[RequestDrafts]:
    """One request of the generator for the drafts of all `rows`, which share its world."""
    unit = writing.unit
    beside = unit.rivals if unit.task == LOOKALIKE else ()
    meta = {
        "count": len(rows),
        "kinds": [row.columns["kind"] for row in rows],
        "profiles": [row.profile for row in rows],
        "environment": writing.world,
        "rivals": [writing.read_contract(row) for row in beside],
    }
    if unit.explored:
        # A model reads them as a part of the world that it takes values from.
        meta["environment"] = {**writing.world, "calls that worked here": list(unit.explored)}
        meta["explored"] = list(unit.explored)
    orders = "\n".join(f"{n}. {format_order(row)}" for n, row in enumerate(rows, 1))
    return await writing.ask("generate", RequestDrafts, unit.own, meta, beside, orders=orders)


def format_order(row: RowBuilder) -> str:
    """A row's kind and profile, as prompts ask for them."""
    profile = ", ".join(f"{name}: {value}" for name, value in row.profile.items())
    return f"kind: {row.columns['kind']}, {profile}"


async def _write_row(
    writing: RowBuilder, shared: RowBuilder, drafts: ModelReply[RequestDrafts], rows: int
) -> dict[str, Json]:
    unit = writing.unit
    try:
        draft = take_draft(writing, shared, drafts, rows)
        text, values = await state_request(writing, draft)
        text, values = await _evolve_request(writing, text, values)
        arguments = await ask_call_of(writing, unit.own, text, values)
        offered = shuffle_tools(writing, unit.shown) if unit.task == LOOKALIKE else [unit.own]
        messages = [make_user_message(text), make_call_message(1, [(unit.own["tool"], arguments)])]
        writing.set_conversation(messages, [make_golden(unit.own, arguments)], offered)
        verification = writing.verify_row()
        if verification.verdict != "reject" and writing.policy.checks and unit.rivals:
            writing.prompts["choose"] = read_prompt("choose").digest
            writing.shown |= {row["contract_digest"]: row for row in unit.shown}
            try:
                checked, receipts = await check_invocation(
                    writing.llm, text, unit.own, unit.rivals, seed=writing.seed
                )
            except (LLMError, BudgetExceeded, ValueError) as error:
                raise make_step_failure(STEP, error) from error
            writing.steps += receipts
            writing.columns["checks"] = dump_text(vars(checked))
            writing.set_verdict(decide([*verification.findings, *checked.findings]))
    except StepFailed as failure:
        return writing.make_row(failure)
    return writing.make_row()


def take_draft(
    writing: RowBuilder, shared: RowBuilder, drafts: ModelReply[RequestDrafts], rows: int
) -> Draft:
    """The row's draft, and its part of their cost. Raises StepFailed where it was not written."""
    writing.credit_reply(shared, drafts, rows, writing.index)
    requests = drafts.value.requests
    if writing.index >= len(requests):
        problem = f"{len(requests)} requests of {rows}"
        raise StepFailed("generate", "too_few", problem, "raise max_tokens of the generator")
    draft = requests[writing.index]
    if draft.kind in KINDS:
        writing.columns["kind"] = draft.kind
    return draft


async def ask_call_of(writing: RowBuilder, row: Row, text: str, values: Values) -> Values:
    """The caller's arguments for a request to one tool."""
    reply = await writing.ask("call", CallArguments, row, {"instruction": text, "values": values})
    return check_values("call", reply.value.arguments)


def shuffle_tools(writing: RowBuilder, rows: Sequence[Row]) -> list[Row]:
    """Tools in an order of the row's own: the right one has no place that gives it away."""
    draw = writing.unit.own, writing.unit.task, writing.index, writing.policy
    return make_rng(*draw, "offered").sample(list(rows), len(rows))
