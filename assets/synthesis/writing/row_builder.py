"""Builds one row: what it asks of models, what it shows them, what it costs."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import (
    PAIRS,
    Golden,
    dump_text,
    make_pair_id,
    read_contract,
)
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.verify.checks.injected_orders import collect_runs
from assets.synthesis.verify.verify import Verification
from assets.synthesis.verify.verify_row import verify_row
from assets.synthesis.writing.contract_prompt import format_value
from assets.synthesis.writing.failures import (
    StepFailed,
    make_step_failure,
    refuse_order,
    refuse_unasked_words,
)
from assets.synthesis.writing.profiles import choose_kind, draw_profile, make_rng, make_seed
from assets.synthesis.writing.receipts import join_licences, make_receipt, share_receipt
from assets.synthesis.writing.scenario import World, make_environment
from assets.synthesis.writing.units import ROLE_OF, Row, Unit, count_rows
from warehouse.json_types import Json, JsonObject
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, OFFLINE, LLMError, Reply

Value = TypeVar("Value", bound=BaseModel)


def describe_unit(unit: Unit, plan: str, llm: LLM) -> dict[str, Json]:
    """The columns that all rows of a unit have from the start."""
    generator = llm.role("generator")
    return {
        **{name: unit.own.get(name) for name in ("marketplace", "recipe_digest")},
        **{name: unit.own[name] for name in ("server_id", "tool", "contract_digest")},
        "plan_digest": plan,
        "task": unit.task,
        "provider": generator.provider,
        "model": generator.model,
    }


class Writing:
    """One row of a unit while it is written."""

    def __init__(
        self, unit: Unit, plan: str, index: int, llm: LLM, policy: SynthesisPolicy
    ) -> None:
        self.unit, self.index, self.llm, self.policy = unit, index, llm, policy
        self.steps: list[dict[str, Json]] = []
        self.prompts: dict[str, str] = {}
        self.shown: dict[str, Row] = {}
        self.profile = draw_profile(unit.own, unit.task, index, policy)
        self.seed = make_seed(unit.task, policy)
        self.columns: dict[str, Json] = {
            **dict.fromkeys(PAIRS.columns),
            **describe_unit(unit, plan, llm),
            "index": index,
            "kind": choose_kind(unit.own, unit.task, index, count_rows(unit, policy), policy),
            "profile": dump_text(self.profile),
            "license": join_licences(unit.rows),
            "simulated": False,
            "seed": self.seed,
            "status": "failed",
            "flaws": "[]",
        }

    @property
    def language(self) -> str:
        return self.profile["language"]

    def start_aside(self) -> "Writing":
        """Another row of the unit, for a request whose receipt this one takes over."""
        return Writing(self.unit, self.columns["plan_digest"], 0, self.llm, self.policy)

    @cached_property
    def world(self) -> World:
        """What exists where this row's person lives."""
        rng = make_rng(self.unit.own, self.unit.task, self.index, self.policy, "world")
        return make_environment(self.read_contract(self.unit.own), self.language, rng)

    def read_contract(self, row: Row) -> dict[str, Json]:
        """A contract that a step is about. Raises StepFailed where it cannot be read."""
        try:
            return read_contract(row)
        except (ValueError, TypeError) as error:
            raise StepFailed("read", "bad_contract", f"{error}", "look at the snapshot") from error

    async def ask(
        self,
        step: str,
        schema: type[Value],
        shows: Row | Sequence[Row],
        meta: JsonObject,
        beside: Sequence[Row] = (),
        **words: str,
    ) -> Reply[Value]:
        """One request with the prompt named `step`; its receipt stays with the row.

        `shows`: the tool or tools that it is about; `beside`: others that its prompt holds. `meta`:
        what else the answer is about, which fills the prompt too; `words`: what only the prompt
        says. Raises StepFailed without an answer.
        """
        role, asked = ROLE_OF[step], read_prompt(step)
        self.prompts[step] = asked.digest
        if isinstance(shows, Mapping):
            meta = {"contract": self.read_contract(shows), **meta}
            shows = [shows]
        else:
            meta = {"contracts": [self.read_contract(row) for row in shows], **meta}
        self.shown |= {row["contract_digest"]: row for row in (*shows, *beside)}
        try:
            values = {name: format_value(name, value) for name, value in meta.items()} | words
            messages = asked.make_messages(mark=make_marker(*values.values()), **values)
            reply = await self.llm.complete(
                role, messages, schema=schema, seed=self.seed, meta=meta
            )
        except (LLMError, BudgetExceeded, ValueError) as error:
            raise make_step_failure(step, error) from error
        self.steps.append(make_receipt(step, role, reply, self.seed))
        return reply

    def credit_reply(self, made: "Writing", reply: Reply[Any], shares: int, place: int) -> None:
        """Takes over one of `shares` equal parts of a request that made several rows."""
        self.prompts |= made.prompts
        self.shown |= made.shown
        self.world = made.world
        self.steps += [share_receipt(step, shares, place) for step in made.steps]
        self.set_writer(reply)

    def set_writer(self, reply: Reply[Any]) -> None:
        """Who wrote the request."""
        self.columns |= {"provider": reply.provider, "model": reply.model}

    def check_text(self, step: str, text: str, *, spoken: bool = True) -> str:
        """A model's text that later prompts and rows may show. Raises StepFailed for an order to
        whoever reads it, and where a person speaks also for what repeats a tool's own text or is
        plainly not in the language that was asked for. The offline grammar obeys nobody, and
        speaks English."""
        text = text.strip()
        refuse_order(step, text)
        if spoken and self.columns["provider"] != OFFLINE:
            refuse_unasked_words(step, text, self._texts, self.language)
        return text

    def set_request(self, step: str, text: str) -> str:
        """What a person asks for, checked; from here on it is the row's instruction."""
        text = self.check_text(step, text)
        if text.isascii() and len(text.split()) < 2:
            hint = "another model or seed may help"
            raise StepFailed(step, "no_request", f"{text!r} asks for nothing", hint)
        self.columns["instruction"] = text
        return text

    @cached_property
    def _texts(self) -> frozenset[tuple[str, ...]]:
        return collect_runs([self.read_contract(row) for row in self.unit.shown])

    def set_conversation(
        self,
        messages: Sequence[JsonObject],
        calls: Sequence[Golden],
        offered: Sequence[Row],
        *,
        simulated: bool = False,
    ) -> None:
        """The whole conversation of the row, its right calls, and what could be called."""
        own = next((c for c in calls if c.tool == self.unit.own["tool"]
                    and c.server_id == self.unit.own["server_id"]), None)  # fmt: skip
        self.columns |= {
            "messages": dump_text(list(messages)),
            "calls": dump_text([{**vars(c), "borrowed": list(c.borrowed)} for c in calls]),
            "arguments": dump_text(own.arguments) if own is not None else None,
            "offered": dump_text([row["contract_digest"] for row in offered]),
            "license": join_licences([*self.unit.rows, *offered]),
            "simulated": simulated,
        }

    def verify_row(self) -> Verification:
        """Holds the whole row against the rules; from here on it is one."""
        contracts = {row["contract_digest"]: self.read_contract(row) for row in self.unit.shown}
        return self.set_verdict(verify_row(self.columns, contracts))

    def set_verdict(self, verification: Verification) -> Verification:
        """Takes over what the filters found."""
        flaws = [vars(finding) for finding in verification.findings]
        self.columns |= {"verdict": verification.verdict, "flaws": dump_text(flaws), "status": "ok"}
        return verification

    def make_row(self, failure: StepFailed | None = None) -> dict[str, Json]:
        """The row as it stands, with the receipt of all that was asked for it."""
        made = {
            **self.columns,
            **(failure.columns if failure is not None else {}),
            "contracts": dump_text(sorted(self.shown)),
            "prompts": dump_text(self.prompts),
            "steps": dump_text(self.steps),
            "prompt_tokens": sum(step["prompt_tokens"] for step in self.steps),
            "completion_tokens": sum(step["completion_tokens"] for step in self.steps),
            "usd": round(sum(step["usd"] for step in self.steps), 9),
        }
        return {**made, "pair_id": make_pair_id(made)}
