"""The rungs of the repair ladder, and the draft on its way up: what each reads and may change."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assets.contracts.rename_history import ContractHistory
from assets.contracts.repair.json_text import UNREADABLE, ParsedArguments, parse_arguments
from assets.contracts.repair.problems import (
    Problem,
    describe_problems,
    find_choices,
    find_schema,
    format_place,
    format_value,
)
from assets.contracts.repair.repair import repair_call
from assets.contracts.schema_shapes import collect_properties
from assets.contracts.validate import Flaw, validate_call
from serving.repair.dialects import read_written_arguments
from serving.repair.drafts import DEEPEST, DraftCall, is_writable, measure_depth
from serving.repair.evidence import (
    ConversationEvidence,
    find_stated_value,
    list_invented,
    list_unguarded,
)
from serving.repair.tools import (
    NEAREST,
    ProposedCall,
    RepairToolset,
    ReviseCall,
    RevisionRequest,
    ToolCandidate,
)
from warehouse.json_types import Schema

VALID, REPAIRED, ABSTAINED = "valid", "repaired", "abstained"
PASSED, CHANGED, FAILED, SKIPPED = "passed", "changed", "failed", "skipped"
RUNGS = ("parse", "tool", "validate", "coerce", "history", "fill", "revise", "verify")


@dataclass(frozen=True)
class RungReport:
    """rung: of RUNGS. outcome: passed (nothing to do), changed, failed (what is wrong is still
    there) or skipped. what: each change, in words. why: what the rung found. ms: time it took."""

    rung: str
    outcome: str
    what: list[str] = field(default_factory=list)
    why: str = ""
    ms: float = 0.0


@dataclass(frozen=True)
class AbstainReason:
    """Why a call was left. kind: no_call, several_calls, too_large, too_deep, unreadable, cut_off,
    unknown_tool, ambiguous_tool, bad_schema, missing_value or unfit_value. path: where, as
    `$.filters[0].name`. question: what to ask the user, in one sentence."""

    kind: str
    question: str
    path: str = "$"


@dataclass(frozen=True)
class RepairReport:
    """outcome: valid (byte for byte), repaired, or abstained (the draft's own values, and a
    `reason`). text: arguments as JSON. problems: what is still wrong (`find_problems`)."""

    outcome: str
    name: str
    arguments: Any
    text: str
    rungs: list[RungReport]
    server: str | None = None
    id: str | None = None
    reason: AbstainReason | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return self.outcome == REPAIRED

    @property
    def steps(self) -> list[str]:
        """Every change of every rung, in order; none of an abstained call, whose draft stands."""
        made = [] if self.outcome == ABSTAINED else self.rungs
        return [item for rung in made for item in rung.what]

    @property
    def ms(self) -> float:
        return round(sum(rung.ms for rung in self.rungs), 3)

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "steps": self.steps, "ms": self.ms}


def write_arguments(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "null"


_SHOWN = 20  # candidates that a model is given
_UNKNOWN = "it knows none of the names"


@dataclass(frozen=True)
class RungStep:
    outcome: str
    what: list[str] = field(default_factory=list)
    why: str = ""

    @classmethod
    def skip(cls, why: str = "") -> "RungStep":
        return cls(SKIPPED, [], why)

    @classmethod
    def fail(cls, why: str) -> "RungStep":
        return cls(FAILED, [], why)

    @classmethod
    def change(cls, what: list[str], why: str = "") -> "RungStep":
        return cls(CHANGED if what else PASSED, what, why)


@dataclass
class RepairState:
    """parsed: the arguments as the draft has them, read. cut: the path of a last value that may go
    on. meant: the tools that the name may mean. flaws: of `arguments` against `candidate`, None
    before both are known. reason: set where the ladder ends without a call."""

    draft: DraftCall
    toolset: RepairToolset
    messages: Sequence[Mapping[str, Any]]
    history: ContractHistory | None
    revise: ReviseCall | None
    evidence: ConversationEvidence
    rungs: list[RungReport] = field(default_factory=list)
    arguments: Any = None
    parsed: Any = None
    cut: str | None = None
    candidate: ToolCandidate | None = None
    meant: list[ToolCandidate] = field(default_factory=list)
    flaws: list[Flaw] | None = None
    reason: AbstainReason | None = None

    @property
    def is_changed(self) -> bool:
        return any(rung.what for rung in self.rungs)

    def stop(self, kind: str, question: str, path: str = "$") -> RungStep:
        self.reason = AbstainReason(kind, question, path)
        return RungStep.fail(question)

    def choose(self, found: Sequence[ToolCandidate]) -> ToolCandidate | None:
        """Of tools of one name, one that takes the arguments, else one whose server is named."""
        if len(found) <= 1:
            return found[0] if found else None
        fit = [item for item in found if not validate_call(item.contract, self.arguments)]
        left = fit or list(found)
        mentioned = [item for item in left if item.server and self.evidence.holds(item.server)]
        return left[0] if len(left) == 1 else mentioned[0] if len(mentioned) == 1 else None

    def take_repaired(self, candidate: ToolCandidate, arguments: Any) -> list[str]:
        """Takes what `repair_call` makes of arguments; its steps."""
        said = self.evidence.is_said
        made = repair_call(candidate.contract, arguments, drop_undeclared=True, is_said=said)
        self.arguments = made.arguments
        self.flaws = validate_call(candidate.contract, self.arguments)
        return list(made.steps)


def ask_for_values(
    candidate: ToolCandidate, problems: Sequence[Problem], flaws: Sequence[Flaw]
) -> AbstainReason:
    """What is missing first, else the first value that does not fit."""
    missing = [problem for problem in problems if problem["kind"] == "missing_required"]
    if missing:
        # What the contract says of the first parameter that is missing.
        at = next((flaw.at for flaw in flaws if flaw.kind == "missing_required"), ())
        root = candidate.contract["inputSchema"]
        known: Any = collect_properties(root, root).get(str(at[0]), {}) if len(at) == 1 else {}
        text = known.get("description") if isinstance(known, dict) else None
        about = f" ({' '.join(str(text).split())[:160]})" if text else ""
        listed = "; ".join(str(item["expected"]) for item in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        ask = "Which value should it have" if missing[0]["path"] != "$" else "Which is meant"
        question = f"{candidate.name} needs {listed}{more}{about}. {ask}?"
        return AbstainReason("missing_value", question[:600], str(missing[0]["path"]))
    first = problems[0]
    question = (
        f"{candidate.name}, {first['path']}: expected {first['expected']}, found {first['found']};"
        f" {first['fix']}"
    )
    return AbstainReason("unfit_value", question[:600], str(first["path"]))


def ask_for_tool(
    name: str, meant: Sequence[ToolCandidate], toolset: RepairToolset
) -> AbstainReason:
    """Which of several servers, or which tool at all."""
    if meant:
        servers = ", ".join(repr(item.server or "unnamed")[:80] for item in meant[:5])
        question = f"{len(meant)} servers have a tool {meant[0].name!r}: {servers}. Which one?"
        return AbstainReason("ambiguous_tool", question)
    near = ", ".join(toolset.list_similar(name)) or ", ".join(list(toolset.by_name)[:5]) or "none"
    question = f"there is no tool {name[:80]!r}; the ones most like it: {near[:300]}. Which one?"
    return AbstainReason("unknown_tool", question)


def explain_cut(
    path: str, parsed: Any, arguments: Any, root: Schema, evidence: ConversationEvidence
) -> AbstainReason | None:
    """Why a text that broke off cannot be closed; None where its last value is whole: a number that
    the conversation holds, or the only choice of its schema that begins so."""
    if path == "name":
        question = "the call broke off before its next argument: send it again, whole"
        return AbstainReason("cut_off", question, path)
    name, value = _find_last(parsed)
    if isinstance(value, int | float) and not isinstance(value, bool) and evidence.holds(value):
        return None
    if path == f"$.{name}" and isinstance(value, str) and isinstance(arguments, dict):
        choices = find_choices(find_schema(root, (str(name),)), root)
        longer = [choice for choice in choices if str(choice).lower().startswith(value.lower())]
        if len(value) > 2 and longer == [arguments.get(name)]:
            return None
    shown = format_value(value, 60)
    question = f"the call broke off at {path}, after {shown}: send it again, whole"
    return AbstainReason("cut_off", question, path)


def _find_last(value: Any) -> tuple[Any, Any]:
    """(name, value) of what stands last in a value."""
    name = None
    while isinstance(value, dict | list) and value:
        name = len(value) - 1 if isinstance(value, list) else list(value)[-1]
        value = value[name]
    return name, value


def parse_draft(state: RepairState) -> RungStep:
    given, steps = state.draft.arguments, []
    if state.draft.fault:
        return state.stop("unreadable", f"the call cannot be read: {state.draft.fault}")
    if isinstance(given, str):
        parsed = parse_arguments(given)
        written = read_written_arguments(given) if parsed.fault == UNREADABLE else None
        if written is not None:
            step = "the arguments were in the form of a chat template: read them"
            parsed = ParsedArguments([written], [step])
        if parsed.fault:
            kind = "too_large" if parsed.too_large else "unreadable"
            return state.stop(kind, f"the arguments cannot be read: {parsed.fault}")
        if len(parsed.values) > 1:
            count = len(parsed.values)
            return state.stop("several_calls", f"the arguments of {count} calls in one: split them")
        given, steps, state.cut = parsed.values[0], parsed.steps, parsed.cut
    if measure_depth(given) > DEEPEST:
        return state.stop("too_deep", f"nested deeper than {DEEPEST} levels: send it flatter")
    state.arguments = state.parsed = given
    return RungStep.change(steps)


def find_tool(state: RepairState) -> RungStep:
    name = state.draft.name
    found, how = state.toolset.find_named(name)
    if how == NEAREST and state.history and state.history.find_successors(name):
        found = []  # what it was renamed to is surer
    state.meant = found
    if not found:
        return RungStep.fail(f"no tool {name[:80]!r} among {len(state.toolset.candidates)}")
    state.candidate = state.choose(found)
    if state.candidate is None:
        return RungStep.fail(f"{len(found)} servers have a tool {found[0].name[:80]!r}")
    if not how:
        return RungStep(PASSED)
    return RungStep.change([f"the tool {name[:80]!r} became {state.candidate.name!r}: {how}"], how)


def validate_draft(state: RepairState) -> RungStep:
    if state.candidate is None:
        return RungStep.skip("no tool to validate against")
    state.flaws = validate_call(state.candidate.contract, state.arguments)
    if any(flaw.kind == "bad_schema" for flaw in state.flaws):
        why = f"no call can be checked against the contract of {state.candidate.name!r}"
        return state.stop("bad_schema", f"{why}: {state.flaws[0].message}"[:300])
    listed = [f"{flaw.kind} at {format_place(flaw.at)}" for flaw in state.flaws[:5]]
    return RungStep.fail("; ".join(listed)) if listed else RungStep(PASSED)


def fit_values(state: RepairState) -> RungStep:
    """Names, types, choices, dates, units and levels, by the schema."""
    if state.candidate is None or not state.flaws:
        return RungStep.skip()
    steps = state.take_repaired(state.candidate, state.arguments)
    return (
        RungStep.change(steps) if steps else RungStep.fail("no other form of what was given fits")
    )


def verify_result(state: RepairState) -> RungStep:
    """The last word: the call fits, or the reason why there is none."""
    if state.candidate is None:
        state.reason = ask_for_tool(state.draft.name, state.meant, state.toolset)
        return RungStep.fail(state.reason.question)
    contract = state.candidate.contract
    if not is_writable(state.arguments):
        return state.stop("unfit_value", "a number in the arguments is too large: send it smaller")
    if state.cut:
        root, held = contract["inputSchema"], state.evidence
        state.reason = explain_cut(state.cut, state.parsed, state.arguments, root, held)
        if state.reason is not None:
            return RungStep.fail(state.reason.question)
    state.flaws = validate_call(contract, state.arguments)
    if state.flaws:
        problems = describe_problems(contract, state.arguments, state.flaws)
        state.reason = ask_for_values(state.candidate, problems, state.flaws)
        return RungStep.fail(state.reason.question)
    return RungStep(PASSED)


def look_up_history(state: RepairState) -> RungStep:
    """The names that tool and parameters have now. It starts from the draft: what history knows is
    surer than a likeness of names, so a rename that was guessed is done again."""
    if state.history is None:
        return RungStep.skip("no history at hand")
    steps: list[str] = []
    if state.candidate is None and not state.meant:
        steps = _take_successor(state, state.history)
    if state.candidate is None or (not steps and not state.is_changed and not state.flaws):
        return RungStep.skip(_UNKNOWN)
    arguments, renamed = _rename_parameters(state, state.history, state.candidate)
    if not steps and not renamed:
        return RungStep.skip(_UNKNOWN)
    before, flaws = state.arguments, state.flaws
    coerced = state.take_repaired(state.candidate, arguments)
    if flaws is not None and len(state.flaws or ()) > len(flaws):
        state.arguments, state.flaws = before, flaws
        return RungStep.fail("what it knows does not make the call fit")
    return RungStep.change([*steps, *renamed, *coerced])


def _take_successor(state: RepairState, history: ContractHistory) -> list[str]:
    """Takes the candidate that the tool was renamed to, where exactly one is at hand."""
    name, found = state.draft.name, list[ToolCandidate]()
    for server, now in history.find_successors(name):
        named = state.toolset.by_name.get(now, [])
        found += [item for item in named if item.server in (None, server) and item not in found]
    state.meant, state.candidate = found, state.choose(found)
    if state.candidate is None:
        return []
    return [f"the tool {name[:80]!r} is called {state.candidate.name!r} now"]


def _rename_parameters(
    state: RepairState, history: ContractHistory, candidate: ToolCandidate
) -> tuple[Any, list[str]]:
    """(the arguments under the names of now, what was renamed)."""
    given, root = state.parsed, candidate.contract["inputSchema"]
    if not isinstance(given, Mapping):
        return state.arguments, []
    declared = collect_properties(root, root)
    renamed = history.find_renamed(candidate.name, candidate.server)
    moves = {
        name: renamed[name]
        for name in given
        if name not in declared and renamed.get(name) in declared and renamed[name] not in given
    }
    if not moves or len(set(moves.values())) < len(moves):
        return state.arguments, []
    moved = {moves.get(name, name): value for name, value in given.items()}
    return moved, [f"{format_place((old,))} is called {new!r} now" for old, new in moves.items()]


def fill_missing(state: RepairState) -> RungStep:
    """Required values that the draft lacks and the user states beyond doubt."""
    missing = [item for item in state.flaws or () if item.kind == "missing_required" and item.at]
    if state.candidate is None or not missing or state.cut:
        return RungStep.skip()
    contract, made, steps = state.candidate.contract, state.arguments, []
    root, tool = contract["inputSchema"], f"{contract['name']} {contract.get('description')}"
    for flaw in missing:
        used = list(made.values()) if isinstance(made, Mapping) else []
        schema, name = find_schema(root, flaw.at), str(flaw.at[-1])
        stated = find_stated_value(name, schema, root, state.evidence.latest, used, tool)
        if stated is not None:
            made = _set_value(made, flaw.at, stated[0])
            steps.append(f"{format_place(flaw.at)} was missing: {stated[1]}")
    flaws = validate_call(contract, made)
    if not steps or len(flaws) > len(state.flaws or ()) - len(steps):
        return RungStep.fail("the conversation leaves doubt about what is missing")
    state.arguments, state.flaws = made, flaws
    return RungStep.change(steps)


def _set_value(arguments: Any, at: Sequence[str | int], value: Any) -> Any:
    """A copy with a value at a place where none is."""
    first, rest = at[0], at[1:]
    result: Any = dict(arguments) if isinstance(arguments, Mapping) else list(arguments)
    result[first] = _set_value(result[first], rest, value) if rest else value
    return result


def ask_model(state: RepairState) -> RungStep:
    """A model's rewritten call, where it fits and makes nothing up."""
    if not state.flaws and state.candidate is not None and not state.cut:
        return RungStep.skip()
    if state.revise is None:
        return RungStep.skip("no model at hand")
    try:
        proposed = state.revise(_build_request(state))
    except Exception as error:  # whatever a model's code raises, the draft stands
        return RungStep.fail(f"{type(error).__name__}: {error}"[:200])
    if proposed is None:
        return RungStep.fail("the model left the draft as it is")
    if proposed.question:
        return state.stop("missing_value", proposed.question[:500])
    return _take_proposed(state, proposed)


def _build_request(state: RepairState) -> RevisionRequest:
    known = [state.candidate] if state.candidate else state.meant
    own = {id(item) for item in known}
    others = [candidate for candidate in state.toolset.candidates if id(candidate) not in own]
    candidates = [*known, *others][:_SHOWN]  # the draft's own tool may be the wrong one
    name, problems = state.draft.name, list[dict[str, Any]]()
    if state.candidate is not None:
        name, contract = state.candidate.name, state.candidate.contract
        problems = describe_problems(contract, state.arguments, state.flaws or ())
    return RevisionRequest(state.messages, candidates, name, state.arguments, problems)


def _take_proposed(state: RepairState, proposed: ProposedCall) -> RungStep:
    candidate = state.choose(state.toolset.by_name.get(proposed.name, []))
    if candidate is None:
        return RungStep.fail(f"the model named a tool that is not there: {proposed.name[:80]!r}")
    result = repair_call(candidate.contract, proposed.arguments)
    if result.problems_left:
        one = result.problems_left[0]
        return RungStep.fail(f"the model's call does not fit: {one['kind']} at {one['path']}")
    given = state.arguments if isinstance(state.arguments, Mapping) and not state.cut else {}
    invented = list_invented(candidate.contract, result.arguments, given, state.evidence)
    if (name := next(invented, None)) is not None:
        return RungStep.fail(f"the model made up {name!r}: nothing that was said holds it")
    unguarded = list_unguarded(result.arguments, state.arguments, state.flaws or ())
    if (name := next((item for item in unguarded if f"$.{item}" != state.cut), None)) is not None:
        return RungStep.fail(f"the model took away or changed {name!r}, which guards the call")
    state.candidate, state.arguments, state.flaws, state.cut = candidate, result.arguments, [], None
    return RungStep.change(["a model rewrote the call", *result.steps])
