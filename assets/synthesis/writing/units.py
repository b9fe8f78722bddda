"""Units: which tool gets which task, with which other tools, and the digest of what decides it.

A partner is the best candidate by a score of the two tools alone. A tool that leaves therefore
changes only the units that show it, and they change back when it returns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from assets.synthesis.policy import SynthesisPolicy, get_rules_version, get_scripts_version
from assets.synthesis.prompts import read_prompt
from assets.synthesis.tables import (
    CLARIFY,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    TASKS,
    make_tool_key,
    make_unit_key,
)
from assets.synthesis.writing.partners import PartnerBook, hash_fraction, select_distinct
from assets.synthesis.writing.profiles import is_evolved
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Row
from warehouse.llm.client import LLM
from warehouse.storage.digest import digest

Near = Callable[[Row], Sequence[Row]]

# The prompts of all requests that a row of the task may make, the checkers' aside.
_WRITTEN = ("generate", "revise", "call")
_STEPS: dict[str, tuple[str, ...]] = {
    SINGLE: _WRITTEN,
    LOOKALIKE: _WRITTEN,
    PARALLEL: ("several", "revise"),
    SEQUENTIAL: ("several", "revise", "act", "call"),
    NO_TOOL: ("no_tool",),
    MISSING: ("missing",),
    CLARIFY: ("missing", "call"),
    RECOVERY: (*_WRITTEN, "repair"),
}
# Prompt -> the role that it is put to.
ROLE_OF = {
    **dict.fromkeys(("generate", "several", "no_tool", "missing"), "generator"),
    **dict.fromkeys(("call", "repair"), "caller"),
    "revise": "reviser",
    "evolve": "evolver",
    "act": "actor",
}
_CHECKS = (("checker_a", "choose"), ("checker_b", "choose"))


@dataclass(frozen=True)
class WritingUnit:
    """One task for one tool. `rows`: the contracts it is about, its own first; `rivals`: the
    look-alikes shown to checkers or offered beside. `problem`: what nobody foresaw when it was
    planned; its rows say so, and nothing is asked for them. `world`: what decides the rows that are
    tasks of a world; None where there are none."""

    task: str
    rows: tuple[Row, ...]
    rivals: tuple[Row, ...] = ()
    problem: str | None = None
    world: str | None = None

    @property
    def own(self) -> Row:
        return self.rows[0]

    @property
    def key(self) -> str:
        """`server_id/tool#task`."""
        return make_unit_key({**self.own, "task": self.task})

    @property
    def shown(self) -> tuple[Row, ...]:
        """Every contract that a prompt of this unit may show."""
        return (*self.rows, *self.rivals)


def make_units(rows: Sequence[Row], near: Near, policy: SynthesisPolicy) -> list[WritingUnit]:
    """All units of one marketplace's clear, usable snapshot rows, in the rows' order.

    `near` names the tools most like one; what it names outside `rows` is left out, so that no
    quarantined text comes back through it.
    """
    book = PartnerBook(rows)
    planned = (
        try_item(
            partial(_make_unit, task, row, book, near, policy),
            lambda hint, task=task, row=row: WritingUnit(task, (row,), problem=hint),
        )
        for row in rows
        for task in TASKS
    )
    return [unit for unit in planned if unit is not None]


def draws_task(row: Row, task: str, share: float) -> bool:
    """Whether a tool gets a task: a frozen hash, so that a new tool moves no other's tasks."""
    return hash_fraction("task", row["server_id"], row["tool"], task) < share


def _make_unit(
    task: str, row: Row, book: PartnerBook, near: Near, policy: SynthesisPolicy
) -> WritingUnit | None:
    if task != SINGLE and not draws_task(row, task, getattr(policy.tasks, task)):
        return None
    if not book.is_readable(row):
        # One unit stands for it, whose rows say that its contract cannot be read.
        return WritingUnit(task, (row,)) if task == SINGLE else None
    match task:
        case "single":
            rivals = book.select_known(near(row))[: policy.distractors] if policy.checks else ()
            return WritingUnit(task, (row,), tuple(rivals))
        case "lookalike" | "no_tool":
            named = select_distinct(row, book.select_known(near(row)))[: policy.distractors]
            return WritingUnit(task, (row,), tuple(named)) if named or task == NO_TOOL else None
        case "parallel":
            partners = book.choose_beside(row)
            return (
                WritingUnit(task, (row, *partners))
                if partners or book.has_parameters(row)
                else None
            )
        case "sequential":
            partner = book.choose_chain(row)
            return WritingUnit(task, (row, partner)) if partner is not None else None
        case "missing_parameter" | "clarification":
            return WritingUnit(task, (row,)) if book.has_required(row) else None
        case _:
            return WritingUnit(task, (row,)) if book.has_parameters(row) else None


def plan_units(units: Sequence[WritingUnit], llm: LLM, policy: SynthesisPolicy) -> dict[str, str]:
    """Unit key -> digest of all that decides its rows: what `warehouse.plan` wants.

    In it: the contracts shown, the prompts and roles of the unit's own steps, the rules, what this
    folder does around them, and the policy values it reads. Nothing of other units.
    """
    identities = {name: llm.identity(name) for name in _list_roles(units, policy)}
    return {
        unit.key: try_item(
            partial(_digest_plan, unit, identities, policy),
            lambda hint, unit=unit: digest([ascii(unit.key), hint]),
        )
        for unit in units
    }


def list_steps(unit: WritingUnit, policy: SynthesisPolicy) -> list[tuple[str, str]]:
    """(role, prompt) of every request that a row of the unit may make."""
    steps = [(ROLE_OF[prompt], prompt) for prompt in _STEPS[unit.task]]
    if unit.task in (SINGLE, LOOKALIKE):
        if any(
            is_evolved(unit.own, unit.task, index, policy)
            for index in range(count_rows(unit, policy))
        ):
            steps.append((ROLE_OF["evolve"], "evolve"))
        if policy.checks and unit.rivals:
            steps += _CHECKS
    return steps


def count_rows(unit: WritingUnit, policy: SynthesisPolicy) -> int:
    """How many rows the unit has."""
    return policy.pairs_per_tool if unit.task == SINGLE else 1


def _list_roles(units: Sequence[WritingUnit], policy: SynthesisPolicy) -> list[str]:
    steps_of_units = (try_item(partial(list_steps, unit, policy), lambda _: []) for unit in units)
    return sorted({role for steps in steps_of_units for role, _ in steps})


def _digest_plan(unit: WritingUnit, identities: JsonObject, policy: SynthesisPolicy) -> str:
    steps = list_steps(unit, policy)
    evolved = [policy.evolve_depth, policy.evolve_share] if ("evolver", "evolve") in steps else None
    return digest(
        {
            "task": unit.task,
            # A partner or rival is named by its server too: a call goes there.
            "own": unit.own["contract_digest"],
            "beside": [[make_tool_key(row), row["contract_digest"]] for row in unit.rows[1:]],
            "rivals": [[make_tool_key(row), row["contract_digest"]] for row in unit.rivals],
            "prompts": {name: read_prompt(name).digest for _, name in steps},
            "roles": {role: identities[role] for role, _ in steps},
            "rules": get_rules_version(),
            "scripts": get_scripts_version(),
            "count": count_rows(unit, policy),
            "seed": policy.seed,
            "languages": list(policy.languages),
            "evolved": evolved,
            **({"problem": unit.problem} if unit.problem else {}),
            **({"world": unit.world} if unit.world else {}),
        }
    )
