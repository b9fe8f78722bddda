"""Builds one row: what it asks of models, what it shows them, what it costs."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import PAIRS, SINGLE, Golden, contract_of, pair_id, text_of
from assets.synthesis.prompts import prompt
from assets.synthesis.verify.checks.injected_orders import given_order, repeated, runs_of
from assets.synthesis.verify.checks.languages import other_language
from assets.synthesis.verify.verify import Verification
from assets.synthesis.verify.verify_row import verify_row
from assets.synthesis.writing.contract_prompt import as_words
from assets.synthesis.writing.profiles import kind, profile, rng_of
from assets.synthesis.writing.receipts import license_of, receipt, share
from assets.synthesis.writing.scenario import World, environment
from assets.synthesis.writing.units import Row, Unit, count
from warehouse.ledger.ledger import BudgetExceeded
from warehouse.llm.client import LLM, OFFLINE, LLMError, Reply
from warehouse.storage.digest import digest

Json = Any
Value = TypeVar("Value", bound=BaseModel)
_SETTINGS = ("unknown_role", "no_provider")  # faults of the whole run, not of a row


class StepFailed(Exception):
    """A step of one row that came to nothing: which, why, and what to do."""

    def __init__(self, step: str, kind: str, found: str, hint: str) -> None:
        super().__init__(f"{step}: {kind}: {found}; {hint}")
        self.columns = {
            "status": "failed",
            "failed_step": step,
            "error_kind": kind,
            "hint": f"{found[:200]}; {hint}",
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
        self.profile = profile(unit.own, unit.task, index, policy)
        self.seed = seed_of(unit.task, policy)
        generator = llm.role("generator")
        self.columns: dict[str, Json] = {
            **dict.fromkeys(PAIRS.columns),
            **{name: unit.own.get(name) for name in ("marketplace", "recipe_digest")},
            **{name: unit.own[name] for name in ("server_id", "tool", "contract_digest")},
            "plan_digest": plan,
            "task": unit.task,
            "index": index,
            "kind": kind(unit.own, unit.task, index, count(unit, policy), policy),
            "profile": text_of(self.profile),
            "license": license_of(unit.rows),
            "simulated": False,
            "provider": generator.provider,
            "model": generator.model,
            "seed": self.seed,
            "status": "failed",
            "flaws": "[]",
        }

    @property
    def language(self) -> str:
        return self.profile["language"]

    def world(self) -> World:
        """What exists where this row's person lives."""
        rng = rng_of(self.unit.own, self.unit.task, self.index, self.policy, "world")
        return environment(self.contract(self.unit.own), self.language, rng)

    def contract(self, row: Row) -> dict[str, Json]:
        """A contract that a step is about. Raises StepFailed where it cannot be read."""
        try:
            return contract_of(row)
        except (ValueError, TypeError) as error:
            raise StepFailed("read", "bad_contract", f"{error}", "look at the snapshot") from error

    async def ask(
        self,
        step: str,
        role: str,
        schema: type[Value],
        shows: Sequence[Row],
        meta: Mapping[str, Json],
        **words: str,
    ) -> Reply[Value]:
        """One request with the prompt named `step`; its receipt stays with the row.

        `shows`: the contracts that the prompt holds. `meta`: what the answer is about, which fills
        the prompt too; `words`: what only the prompt says. Raises StepFailed without an answer.
        """
        asked = prompt(step)
        self.prompts[step] = asked.digest
        self.shown |= {row["contract_digest"]: row for row in shows}
        try:
            values = {name: as_words(name, value) for name, value in meta.items()} | words
            messages = asked.messages(mark=marker(values), **values)
            reply = await self.llm.complete(
                role, messages, schema=schema, seed=self.seed, meta=meta
            )
        except (LLMError, BudgetExceeded, ValueError) as error:
            raise failed(step, error) from error
        self.steps.append(receipt(step, role, reply, self.seed))
        return reply

    def credit(self, made: "Writing", reply: Reply[Any], shares: int, place: int) -> None:
        """Takes over one of `shares` equal parts of a request that several rows came of."""
        self.prompts |= made.prompts
        self.shown |= made.shown
        self.steps += [share(step, shares, place) for step in made.steps]
        self.by(reply)

    def by(self, reply: Reply[Any]) -> None:
        """Who wrote the request."""
        self.columns |= {"provider": reply.provider, "model": reply.model}

    def heed(self, step: str, text: str, *, spoken: bool = True) -> str:
        """A model's text that later prompts and rows may show. Raises StepFailed for an order to
        whoever reads it, and where a person speaks also for what repeats a tool's own text or is
        plainly not in the language that was asked for. The offline grammar obeys nobody, and
        speaks English."""
        text = text.strip()
        hint = "the answer is kept in the ledger; look at the tool's text"
        if (order := given_order(text)) is not None:
            raise StepFailed(step, "suspicious", order, hint)
        if not spoken or self.columns["provider"] == OFFLINE:
            return text
        if (run := repeated(text, self._texts)) is not None:
            raise StepFailed(step, "suspicious", f"it repeats the tool's own {run!r}", hint)
        if (other := other_language(text, self.language)) is not None:
            found = f"the text is in {other}, asked for {self.language}"
            raise StepFailed(step, "wrong_language", found, "another model or seed may help")
        return text

    def request(self, step: str, text: str) -> str:
        """What a person asks for, as `heed` takes it; from here on it is the row's instruction."""
        text = self.heed(step, text)
        if text.isascii() and len(text.split()) < 2:
            hint = "another model or seed may help"
            raise StepFailed(step, "no_request", f"{text!r} asks for nothing", hint)
        self.columns["instruction"] = text
        return text

    @cached_property
    def _texts(self) -> frozenset[tuple[str, ...]]:
        return runs_of([self.contract(row) for row in self.unit.shown])

    def sound(self, step: str, values: Mapping[str, Json]) -> dict[str, Json]:
        """A model's values, where they are JSON: NaN and half a character are not."""
        try:
            text_of(dict(values))
        except ValueError as error:
            raise failed(step, error) from error
        return dict(values)

    def says(
        self,
        messages: Sequence[Mapping[str, Json]],
        calls: Sequence[Golden],
        offered: Sequence[Row],
        *,
        simulated: bool = False,
    ) -> None:
        """The whole conversation of the row, its right calls, and what could be called."""
        own = next((c for c in calls if c.tool == self.unit.own["tool"]
                    and c.server_id == self.unit.own["server_id"]), None)  # fmt: skip
        self.columns |= {
            "messages": text_of(list(messages)),
            "calls": text_of([{**vars(c), "borrowed": list(c.borrowed)} for c in calls]),
            "arguments": text_of(own.arguments) if own is not None else None,
        }
        self.columns |= {
            "offered": text_of([row["contract_digest"] for row in offered]),
            "license": license_of([*self.unit.rows, *offered]),
            "simulated": simulated,
        }

    def verified(self) -> Verification:
        """Holds the whole row against the rules; from here on it is one."""
        contracts = {row["contract_digest"]: self.contract(row) for row in self.unit.shown}
        return self.judged(verify_row(self.columns, contracts))

    def judged(self, verification: Verification) -> Verification:
        """Takes over what the filters found."""
        flaws = [vars(finding) for finding in verification.findings]
        self.columns |= {"verdict": verification.verdict, "flaws": text_of(flaws), "status": "ok"}
        return verification

    def row(self, failure: StepFailed | None = None) -> dict[str, Json]:
        """The row as it stands, with the receipt of all that was asked for it."""
        made = {
            **self.columns,
            **(failure.columns if failure is not None else {}),
            "contracts": text_of(sorted(self.shown)),
            "prompts": text_of(self.prompts),
            "steps": text_of(self.steps),
            "prompt_tokens": sum(step["prompt_tokens"] for step in self.steps),
            "completion_tokens": sum(step["completion_tokens"] for step in self.steps),
            "usd": round(sum(step["usd"] for step in self.steps), 9),
        }
        return {**made, "pair_id": pair_id(made)}


def seed_of(task: str, policy: SynthesisPolicy) -> int:
    """The seed of a task's requests: each its own, or two tasks would ask for one text twice."""
    return policy.seed if task == SINGLE else int(digest([policy.seed, task])[:7], 16)


def marker(values: Mapping[str, str]) -> str:
    """The code of a prompt's markers: a digest of the data, which so cannot hold it."""
    return f"DATA-{digest(dict(values))[:16]}"


def failed(step: str, error: Exception) -> StepFailed:
    """An error of the client as the failure of a step. Faults of the settings are raised as they
    are."""
    if isinstance(error, LLMError):
        if error.kind in _SETTINGS:
            raise error
        return StepFailed(step, error.kind, error.found, error.hint)
    if isinstance(error, BudgetExceeded):
        return StepFailed(step, "budget", str(error), "raise budget_usd and run again")
    hint = "the contract or the answer holds a value that JSON cannot"
    return StepFailed(step, "bad_value", str(error), hint)
