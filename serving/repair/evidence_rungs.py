"""The rungs that need more than the contract: its history, the conversation, a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.history.moves import ContractHistory
from assets.contracts.repair.json_paths import find_schema, format_place
from assets.contracts.repair.problems import describe_problems
from assets.contracts.repair.repair import repair_call
from assets.contracts.schema.reading import collect_properties
from assets.contracts.validate import validate_call
from serving.repair.evidence import list_invented, list_unguarded
from serving.repair.fill import find_stated_value
from serving.repair.revision import ProposedCall, RevisionRequest
from serving.repair.state import State, Step
from serving.repair.tools import Candidate

_SHOWN = 20  # candidates that a model is given
_UNKNOWN = "it knows none of the names"


def look_up_history(state: State) -> Step:
    """The names that tool and parameters have now. It starts from the draft: what history knows is
    surer than a likeness of names, so a rename that was guessed is done again."""
    if state.history is None:
        return Step.skip("no history at hand")
    steps: list[str] = []
    if state.candidate is None and not state.meant:
        steps = _take_successor(state, state.history)
    if state.candidate is None or (not steps and not state.is_changed and not state.flaws):
        return Step.skip(_UNKNOWN)
    arguments, renamed = _rename_parameters(state, state.history, state.candidate)
    if not steps and not renamed:
        return Step.skip(_UNKNOWN)
    before, flaws = state.arguments, state.flaws
    coerced = state.take_repaired(state.candidate, arguments)
    if flaws is not None and len(state.flaws or ()) > len(flaws):
        state.arguments, state.flaws = before, flaws
        return Step.fail("what it knows does not make the call fit")
    return Step.change([*steps, *renamed, *coerced])


def _take_successor(state: State, history: ContractHistory) -> list[str]:
    """Takes the candidate that the tool was renamed to, where exactly one is at hand."""
    name, found = state.draft.name, list[Candidate]()
    for server, now in history.find_successors(name):
        named = state.toolset.by_name.get(now, [])
        found += [one for one in named if one.server in (None, server) and one not in found]
    state.meant, state.candidate = found, state.choose(found)
    if state.candidate is None:
        return []
    return [f"the tool {name[:80]!r} is called {state.candidate.name!r} now"]


def _rename_parameters(
    state: State, history: ContractHistory, candidate: Candidate
) -> tuple[Any, list[str]]:
    """(the arguments under the names of now, what was renamed)."""
    given, root = state.parsed, candidate.contract["inputSchema"]
    if not isinstance(given, Mapping):
        return state.arguments, []
    declared = collect_properties(root, root)
    known = history.find_renamed(candidate.name, candidate.server)
    moves = {
        name: known[name]
        for name in given
        if name not in declared and known.get(name) in declared and known[name] not in given
    }
    if not moves or len(set(moves.values())) < len(moves):
        return state.arguments, []
    made = {moves.get(name, name): value for name, value in given.items()}
    return made, [f"{format_place((old,))} is called {new!r} now" for old, new in moves.items()]


def fill_missing(state: State) -> Step:
    """Required values that the draft lacks and the user states beyond doubt."""
    missing = [one for one in state.flaws or () if one.kind == "missing_required" and one.at]
    if state.candidate is None or not missing or state.cut:
        return Step.skip()
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
        return Step.fail("the conversation leaves doubt about what is missing")
    state.arguments, state.flaws = made, flaws
    return Step.change(steps)


def _set_value(arguments: Any, at: Sequence[str | int], value: Any) -> Any:
    """A copy with a value at a place where none is."""
    first, rest = at[0], at[1:]
    made: Any = dict(arguments) if isinstance(arguments, Mapping) else list(arguments)
    made[first] = _set_value(made[first], rest, value) if rest else value
    return made


def ask_model(state: State) -> Step:
    """A model's rewritten call, where it fits and makes nothing up."""
    if not state.flaws and state.candidate is not None and not state.cut:
        return Step.skip()
    if state.revise is None:
        return Step.skip("no model at hand")
    try:
        proposed = state.revise(_build_request(state))
    except Exception as error:  # whatever a model's code raises, the draft stands
        return Step.fail(f"{type(error).__name__}: {error}"[:200])
    if proposed is None:
        return Step.fail("the model left the draft as it is")
    if proposed.question:
        return state.stop("missing_value", proposed.question[:500])
    return _take_proposed(state, proposed)


def _build_request(state: State) -> RevisionRequest:
    known = [state.candidate] if state.candidate else state.meant
    own = {id(one) for one in known}
    others = [candidate for candidate in state.toolset.candidates if id(candidate) not in own]
    candidates = [*known, *others][:_SHOWN]  # the draft's own tool may be the wrong one
    name, problems = state.draft.name, list[dict[str, Any]]()
    if state.candidate is not None:
        name, contract = state.candidate.name, state.candidate.contract
        problems = describe_problems(contract, state.arguments, state.flaws or ())
    return RevisionRequest(state.messages, candidates, name, state.arguments, problems)


def _take_proposed(state: State, proposed: ProposedCall) -> Step:
    candidate = state.choose(state.toolset.by_name.get(proposed.name, []))
    if candidate is None:
        return Step.fail(f"the model named a tool that is not there: {proposed.name[:80]!r}")
    made = repair_call(candidate.contract, proposed.arguments)
    if made.problems_left:
        one = made.problems_left[0]
        return Step.fail(f"the model's call does not fit: {one['kind']} at {one['path']}")
    given = state.arguments if isinstance(state.arguments, Mapping) and not state.cut else {}
    invented = list_invented(candidate.contract, made.arguments, given, state.evidence)
    if (name := next(invented, None)) is not None:
        return Step.fail(f"the model made up {name!r}: nothing that was said holds it")
    unguarded = list_unguarded(made.arguments, state.arguments, state.flaws or ())
    if (name := next((one for one in unguarded if f"$.{one}" != state.cut), None)) is not None:
        return Step.fail(f"the model took away or changed {name!r}, which guards the call")
    state.candidate, state.arguments, state.flaws, state.cut = candidate, made.arguments, [], None
    return Step.change(["a model rewrote the call", *made.steps])
