"""Builds one row of PAIRS: its requests to models, their receipts, its failures and its columns."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

from assets.synthesis.contract_reading import get_input_schema, get_properties
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.tables import PAIRS, GoldenCall, dump_text, make_pair_id, read_contract
from assets.synthesis.verify.model_text import (
    collect_runs,
    find_order,
    find_other_language,
    find_repeated_run,
)
from assets.synthesis.verify.rules import RulesVerdict, verify_row
from assets.synthesis.writing.profiles import (
    World,
    choose_kind,
    draw_profile,
    make_environment,
    make_rng,
    make_seed,
)
from assets.synthesis.writing.units import ROLE_OF, Row, WritingUnit, count_rows
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, OFFLINE, LLMError, ModelReply
from warehouse.llm.roles import PENDING


class StepFailed(Exception):
    """A step of one row that failed or waits for a batch. retry_at: epoch seconds."""

    def __init__(
        self, step: str, kind: str, problem: str, hint: str, retry_at: float | None = None
    ) -> None:
        super().__init__(f"{step}: {kind}: {problem}; {hint}")
        self.columns = {
            "status": PENDING if kind == PENDING else "failed",
            "failed_step": step,
            "error_kind": kind,
            "hint": f"{problem[:200]}; {hint}",
            "retry_at": retry_at,
        }


def make_step_failure(step: str, error: Exception) -> StepFailed:
    """A client's error as the failure of a step; raises those of the settings."""
    if isinstance(error, LLMError):
        if error.kind in ("unknown_role", "no_provider"):
            raise error
        retry_at = getattr(error, "retry_at", None)
        return StepFailed(step, error.kind, error.found, error.hint, retry_at or None)
    if isinstance(error, BudgetExceeded):
        return StepFailed(step, "budget", str(error), "raise budget_usd and run again")
    hint = "the contract or the answer holds a value that JSON cannot"
    return StepFailed(step, "bad_value", str(error), hint)


def check_values(step: str, values: JsonObject) -> dict[str, Any]:
    """A model's values where they are JSON: no NaN, no half character. Raises StepFailed."""
    try:
        dump_text(dict(values))
    except ValueError as error:
        raise make_step_failure(step, error) from error
    return dict(values)


def make_receipt(step: str, role: str, reply: ModelReply[Any], seed: int) -> dict[str, Json]:
    return {
        "step": step,
        "role": role,
        "model": reply.model,
        "seed": seed,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "usd": reply.usd,
    }


def join_licences(rows: Sequence[JsonObject]) -> str | None:
    """The licences of all sources as one SPDX expression; None where one is not known."""
    licences = [row.get("license") for row in rows]
    if not all(licences):
        return None
    return " AND ".join(sorted({str(name) for name in licences}))


LONGEST = 24_000  # characters of one contract in a prompt: the longest real contract has 20,000
LONGEST_BESIDE = 6_000  # of one among several: 99% of real contracts are shorter
_KEPT = ("type", "description", "enum", "default", "format")


def show_contract(contract: Contract, longest: int = LONGEST) -> str:
    """A contract as text. A longer one loses its inner schemas; names and types stay."""
    text = json.dumps(contract, ensure_ascii=False, indent=1)
    if len(text) <= longest:
        return text
    slim = {
        name: {key: value for key, value in member.items() if key in _KEPT}
        for name, member in get_properties(contract).items()
        if isinstance(member, Mapping)
    }
    schema = {**get_input_schema(contract), "properties": slim}
    less = {**contract, "inputSchema": schema, "outputSchema": None}
    return json.dumps(less, ensure_ascii=False)[:longest]


def show_contracts(contracts: Sequence[JsonObject]) -> str:
    """Several contracts, counted from 1 in the order shown."""
    texts = (
        f"Tool {number}:\n{show_contract(contract, LONGEST_BESIDE)}"
        for number, contract in enumerate(contracts, 1)
    )
    return "\n\n".join(texts)


def format_value(name: str, value: Json) -> str:
    """What a prompt says of one member of a request's meta."""
    if name == "contract":
        return show_contract(value)
    if name in ("contracts", "rivals"):
        return show_contracts(value) or "(none)"
    if name == "absent":
        return ", ".join(value)
    return value if isinstance(value, str) else dump_text(value)


Value = TypeVar("Value", bound=BaseModel)


def describe_unit(unit: WritingUnit, plan: str, llm: LLM) -> dict[str, Json]:
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


class RowBuilder:
    """One row of a unit while it is written."""

    def __init__(
        self, unit: WritingUnit, plan: str, index: int, llm: LLM, policy: SynthesisPolicy
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
            "basis": unit.basis,
            "kind": choose_kind(unit.own, unit.task, index, count_rows(unit, policy), policy),
            "profile": dump_text(self.profile),
            "license": join_licences(unit.rows),
            "simulated": False,
            "seed": self.seed,
            "status": "failed",
            "flaws": "[]",
        }

    @cached_property
    def world(self) -> World:
        """What exists where this row's person lives."""
        rng = make_rng(self.unit.own, self.unit.task, self.index, self.policy, "world")
        return make_environment(self.profile["language"], rng)

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
    ) -> ModelReply[Value]:
        """One request with the prompt `step`; its receipt stays with the row. shows: the tools it
        is about; beside: others in its prompt; meta: what else; words: for the prompt alone. Raises
        StepFailed."""
        role, prompt = ROLE_OF[step], read_prompt(step)
        self.prompts[step] = prompt.digest
        if isinstance(shows, Mapping):
            meta = {"contract": self.read_contract(shows), **meta}
            shows = [shows]
        else:
            meta = {"contracts": [self.read_contract(row) for row in shows], **meta}
        self.shown |= {row["contract_digest"]: row for row in (*shows, *beside)}
        try:
            values = {name: format_value(name, value) for name, value in meta.items()} | words
            messages = prompt.make_messages(mark=make_marker(*values.values()), **values)
            reply = await self.llm.complete(
                role, messages, schema=schema, seed=self.seed, meta=meta
            )
        except (LLMError, BudgetExceeded, ValueError) as error:
            raise make_step_failure(step, error) from error
        self.steps.append(make_receipt(step, role, reply, self.seed))
        return reply

    def credit_reply(
        self, shared: "RowBuilder", reply: ModelReply[Any], shares: int, place: int
    ) -> None:
        """Takes over one of `shares` equal parts of a reply; tokens that do not divide go first."""
        self.prompts |= shared.prompts
        self.shown |= shared.shown
        self.world = shared.world
        for step in shared.steps:
            tokens = {
                name: step[name] // shares + (place < step[name] % shares)
                for name in ("prompt_tokens", "completion_tokens")
            }
            self.steps.append({**step, **tokens, "usd": step["usd"] / shares})
        self.set_writer(reply)

    def set_writer(self, reply: ModelReply[Any]) -> None:
        """Who wrote the request."""
        self.columns |= {"provider": reply.provider, "model": reply.model}

    def check_text(self, step: str, text: str, *, spoken: bool = True) -> str:
        """A model's text for later prompts. Raises StepFailed for an order to its reader, and of a
        person's words for a tool's own text or another language than was asked for."""
        text, hint = text.strip(), "the answer is kept in the ledger; look at the tool's text"
        if (order := find_order(text)) is not None:
            raise StepFailed(step, "suspicious", order, hint)
        if spoken and self.columns["provider"] != OFFLINE:
            if (run := find_repeated_run(text, self._texts)) is not None:
                raise StepFailed(step, "suspicious", f"it repeats the tool's own {run!r}", hint)
            asked = self.profile["language"]
            if (other := find_other_language(text, asked)) is not None:
                problem = f"the text is in {other}, asked for {asked}"
                raise StepFailed(step, "wrong_language", problem, "another model or seed may help")
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
        calls: Sequence[GoldenCall],
        offered: Sequence[Row],
        *,
        simulated: bool = False,
    ) -> None:
        """The whole conversation of the row, its right calls, and what could be called."""
        own_call = next((c for c in calls if c.tool == self.unit.own["tool"]
                    and c.server_id == self.unit.own["server_id"]), None)  # fmt: skip
        self.columns |= {
            "messages": dump_text(list(messages)),
            "calls": dump_text([{**vars(c), "borrowed": list(c.borrowed)} for c in calls]),
            "arguments": dump_text(own_call.arguments) if own_call is not None else None,
            "offered": dump_text([row["contract_digest"] for row in offered]),
            "license": join_licences([*self.unit.rows, *offered]),
            "simulated": simulated,
        }

    def verify_row(self) -> RulesVerdict:
        """Holds the whole row against the rules; from here on it is one."""
        contracts = {row["contract_digest"]: self.read_contract(row) for row in self.unit.shown}
        return self.set_verdict(verify_row(self.columns, contracts))

    def set_verdict(self, verification: RulesVerdict) -> RulesVerdict:
        """Takes over what the filters found."""
        flaws = [vars(finding) for finding in verification.findings]
        self.columns |= {"verdict": verification.verdict, "flaws": dump_text(flaws), "status": "ok"}
        return verification

    def make_row(self, failure: StepFailed | None = None) -> dict[str, Json]:
        """The row as it stands, with the receipt of all that was asked for it."""
        row = {
            **self.columns,
            **(failure.columns if failure is not None else {}),
            "contracts": dump_text(sorted(self.shown)),
            "prompts": dump_text(self.prompts),
            "steps": dump_text(self.steps),
            "prompt_tokens": sum(step["prompt_tokens"] for step in self.steps),
            "completion_tokens": sum(step["completion_tokens"] for step in self.steps),
            "usd": round(sum(step["usd"] for step in self.steps), 9),
        }
        return {**row, "pair_id": make_pair_id(row)}
