"""The rungs that need the contract alone: parse, tool, validate, coerce, verify."""

from assets.contracts.repair.json_paths import format_place
from assets.contracts.repair.problems import describe_problems
from assets.contracts.validate import validate_call
from serving.repair.parse import DEEPEST, is_writable, measure_depth, parse_arguments
from serving.repair.reasons import ask_for_tool, ask_for_values, explain_cut
from serving.repair.report import PASSED
from serving.repair.state import State, Step


def parse_draft(state: State) -> Step:
    """Arguments as text become a JSON value."""
    given, steps = state.draft.arguments, []
    if isinstance(given, str):
        parsed = parse_arguments(given)
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
    return Step.change(steps)


def find_tool(state: State) -> Step:
    """The one tool that the draft's name means."""
    name = state.draft.name
    found, how = state.toolset.find_named(name)
    if how == "the nearest by spelling" and state.history and state.history.find_successors(name):
        found = []  # what it was renamed to is surer
    state.meant = found
    if not found:
        return Step.fail(f"no tool {name[:80]!r} among {len(state.toolset.candidates)}")
    state.candidate = state.choose(found)
    if state.candidate is None:
        return Step.fail(f"{len(found)} servers have a tool {found[0].name[:80]!r}")
    if not how:
        return Step(PASSED)
    return Step.change([f"the tool {name[:80]!r} became {state.candidate.name!r}: {how}"], how)


def validate_draft(state: State) -> Step:
    """What is wrong with the arguments, if anything."""
    if state.candidate is None:
        return Step.skip("no tool to validate against")
    state.flaws = validate_call(state.candidate.contract, state.arguments)
    if any(flaw.kind == "bad_schema" for flaw in state.flaws):
        why = f"no call can be checked against the contract of {state.candidate.name!r}"
        return state.stop("bad_schema", f"{why}: {state.flaws[0].message}"[:300])
    listed = [f"{one.kind} at {format_place(one.at)}" for one in state.flaws[:5]]
    return Step.fail("; ".join(listed)) if listed else Step(PASSED)


def fit_values(state: State) -> Step:
    """Names, types, choices, dates, units and levels, by the schema."""
    if state.candidate is None or not state.flaws:
        return Step.skip()
    steps = state.take_repaired(state.candidate, state.arguments)
    return Step.change(steps) if steps else Step.fail("no other form of what was given fits")


def verify_result(state: State) -> Step:
    """The last word: the call fits, or the reason why there is none."""
    if state.candidate is None:
        state.reason = ask_for_tool(state.draft.name, state.meant, state.toolset)
        return Step.fail(state.reason.question)
    contract = state.candidate.contract
    if not is_writable(state.arguments):
        return state.stop("unfit_value", "a number in the arguments is too large: send it smaller")
    if state.cut:
        root, held = contract["inputSchema"], state.evidence
        state.reason = explain_cut(state.cut, state.parsed, state.arguments, root, held)
        if state.reason is not None:
            return Step.fail(state.reason.question)
    state.flaws = validate_call(contract, state.arguments)
    if state.flaws:
        problems = describe_problems(contract, state.arguments, state.flaws)
        state.reason = ask_for_values(state.candidate, problems, state.flaws)
        return Step.fail(state.reason.question)
    return Step(PASSED)
