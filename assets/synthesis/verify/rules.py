"""The rules: does a call fit its contract, and does the request carry the call?

`accept`: nothing wrong. `reject`: a flaw that no judge could excuse. `unsure`: a value that the
rules cannot find in the text, and a judge or a person may ("next to the Eiffel Tower").

Several calls share one text. A value that an earlier call's result supplies (`borrowed`) is looked
up in the tool messages, never in the text. Odd input never raises: a row that cannot be read is a
finding.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import (
    get_input_schema,
    get_properties,
    get_required,
    read_purpose,
    resolve_schema,
)
from assets.synthesis.tables import (
    CLARIFY,
    CONTRACT,
    EXPLORED,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    TRACE,
    GoldenCall,
    read_goldens,
)
from assets.synthesis.verify.grading import grade_value, walk_leaves
from assets.synthesis.verify.pair_checks import (
    PairFinding,
    find_echo,
    find_form_flaws,
    find_other_form,
    find_reversed_ends,
    show_scalar,
)
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.words import ABSENT, LIKELY, STATED, stem_word
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, JsonObject, Row, Schema

_SCHEMA_KINDS = {
    "missing_required": "missing_required_argument",
    "unknown_argument": "unknown_argument",
    "wrong_type": "wrong_type",
    "not_an_object": "wrong_type",
    "bad_schema": "bad_schema",
}


@dataclass(frozen=True)
class RulesVerdict:
    """The rules' verdict on one pair: accept, reject or unsure, and why."""

    verdict: str
    findings: tuple[PairFinding, ...]

    @property
    def kinds(self) -> list[str]:
        return sorted({finding.kind for finding in self.findings})


def verify(
    contract: Contract, instruction: str, arguments: Json, *, server: str = ""
) -> RulesVerdict:
    """Checks one pair by rules; odd input is a finding. server: id or name, a flaw where it is
    named."""
    findings = [
        *find_call_flaws(contract, arguments),
        *find_form_flaws(contract, instruction, server),
    ]
    if isinstance(arguments, Mapping):
        findings += find_ungrounded(contract, RequestText(instruction), arguments)
        findings += find_echo(contract, instruction, arguments)
    return decide(findings)


def decide(findings: Iterable[PairFinding]) -> RulesVerdict:
    """The verdict that follows from findings: a certain one rejects, any other leaves it open."""
    all_findings = tuple(findings)
    if any(finding.certain for finding in all_findings):
        return RulesVerdict("reject", all_findings)
    return RulesVerdict("unsure" if all_findings else "accept", all_findings)


def find_call_flaws(contract: Contract, arguments: Json) -> Iterable[PairFinding]:
    """What is wrong with the call by its contract alone."""
    for flaw in validate_call(contract, arguments):
        yield PairFinding(_SCHEMA_KINDS.get(flaw.kind, "bad_value"), flaw.path, flaw.message)
    if isinstance(arguments, Mapping):
        yield from find_other_form(contract, arguments)


def find_ungrounded(
    contract: Contract, text: RequestText, arguments: JsonObject
) -> Iterable[PairFinding]:
    """Values of the call that the text does not hold."""
    root, properties = get_input_schema(contract), get_properties(contract)
    required = get_required(contract)
    for name, value in arguments.items():
        of = resolve_schema(properties.get(name) or {}, root)
        if "default" in of and of["default"] == value:
            continue
        grades = _grade_leaves(str(name), value, of, text)
        worst = [
            g for g in grades if g[1] != STATED and not _is_excused(g, str(name), required, of)
        ]
        if not worst or _is_mostly_stated(grades):
            continue
        path, how, leaf = worst[0]
        kind = "missing_required_value" if name in required else "ungrounded_value"
        if how == ABSENT and text.numbers.read and isinstance(leaf, (int, float)):
            kind = "ungrounded_value"
        reason = f"{show_scalar(leaf)[:60]!r} is not in the text ({how})"
        yield PairFinding(kind, path[:200], reason, certain=False)
    yield from find_reversed_ends(arguments, text)


def find_worst_grade(
    name: str, value: Json, text: RequestText, contract: Contract | None = None
) -> str:
    """How well a text holds one argument: the worst grade of its leaves."""
    of = resolve_schema(
        get_properties(contract or {}).get(name) or {}, get_input_schema(contract or {})
    )
    grades = _grade_leaves(name, value, of, text)
    if _is_mostly_stated(grades):
        return STATED
    return min((how for _, how, _ in grades), key=(ABSENT, LIKELY, STATED).index, default=STATED)


# Words that structure a nested value; nobody says them.
_STRUCTURAL = {"role", "type", "operator", "op", "kind", "direction", "object"}
# Which of a tool's several operations is meant is said by the whole request, not by its name.
_CHOSEN = {"action", "command", "operation", "subtool", "subcommand", "mode", "method", "op"}


# One of these is asked for, or it is the default.
_COUNTS = {"limit", "count", "size", "max", "top", "n", "num", "number", "results", "amount"}


def _is_excused(
    graded: tuple[str, str, Json], name: str, required: list[str], schema: Schema
) -> bool:
    """Whether a value that is not stated may stand: what an option says is often only implied."""
    path, how, leaf = graded
    if path != name and re.split(r"[.\[]", path)[-1].lower() in _STRUCTURAL:
        return True
    if how != LIKELY:
        return False
    if schema.get("enum") and _CHOSEN & set(split_identifier(name)):
        return True
    if name in required:
        return False
    if leaf in (0, 1) and not isinstance(leaf, bool):
        return not _COUNTS & set(split_identifier(name))
    return isinstance(leaf, bool) or bool(schema.get("enum"))


def _grade_leaves(
    name: str, value: Json, schema: Schema, text: RequestText
) -> list[tuple[str, str, Json]]:
    grades: list[tuple[str, str, Json]] = []
    for path, leaf in walk_leaves(value, name):
        of = schema if path == name else _get_member_schema(schema, path)
        last = re.split(r"[.\[]", path)
        leaf_name = next((part for part in reversed(last) if not part.rstrip("]").isdigit()), name)
        grades.append(
            (path, grade_value(leaf, of, leaf_name, text, listed=path.endswith("]")), leaf)
        )
    return grades


def _get_member_schema(schema: Schema, path: str) -> JsonObject:
    """The schema of a leaf, as far as plain `items` and `properties` lead to it."""
    here: Json = schema
    for part in re.findall(r"\[\d{1,9}\]|\.[^.\[]+", path):
        members = here.get("properties")
        inner = members.get(part[1:]) if isinstance(members, Mapping) else None
        here = here.get("items") if part[0] == "[" else inner
        if not isinstance(here, Mapping):
            return {}
    return here


def _is_mostly_stated(grades: list[tuple[str, str, Json]]) -> bool:
    """Whether a nested value is stated but for its bookkeeping (a `type`, an index, a flag)."""
    stated = sum(how == STATED for _, how, _ in grades)
    return len(grades) >= 4 and stated / len(grades) >= 0.75


class UnreadableColumn(ValueError):
    """A column that does not hold what it should."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"{column}: {problem}")
        self.column = column


@dataclass(frozen=True)
class PairConversation:
    """messages: (role, text) spoken; made: (tool, arguments) called; results: tool messages."""

    messages: list[tuple[str, str]]
    made: list[tuple[str, Json]]
    results: list[str]
    calls: list[GoldenCall]
    offered: list[str]
    text: str  # all that the user says
    basis: str = CONTRACT

    @property
    def user(self) -> list[str]:
        return [text for role, text in self.messages if role == "user"]


def read_conversation(row: Row) -> PairConversation:
    """Reads a row. Raises Unreadable naming the column."""
    messages: list[tuple[str, str]] = []
    calls_made: list[tuple[str, Json]] = []
    results: list[str] = []
    for message in _read_list(row, "messages"):
        if not isinstance(message, Mapping):
            raise UnreadableColumn("messages", "a message is no object")
        role, content = str(message.get("role")), message.get("content")
        text = content if isinstance(content, str) else ""
        if role == "tool":
            results.append(text)
        elif text:
            messages.append((role, text))
        calls_made += [_read_made_call(call) for call in message.get("tool_calls") or []]
    spoken = [text for role, text in messages if role == "user"]
    text = "\n".join(spoken) or str(row.get("instruction") or "")
    offered = [str(digest) for digest in _read_list(row, "offered")]
    basis = str(row.get("basis") or CONTRACT)
    listed_calls = _read_list(row, "calls")
    try:
        calls = read_goldens({"calls": json.dumps(listed_calls)})
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableColumn("calls", f"not a list of calls ({str(error)[:60]})") from error
    for golden in calls:
        if not isinstance(golden.arguments, dict):
            raise UnreadableColumn("calls", f"arguments are {type(golden.arguments).__name__}")
    return PairConversation(messages, calls_made, results, calls, offered, text, basis)


def is_question(text: str) -> bool:
    """Whether a text asks something."""
    return any(mark in text for mark in "?？؟")


def _read_list(row: Row, column: str) -> list[Json]:
    value = row.get(column)
    try:
        items = json.loads(value) if isinstance(value, str) and value else value or []
    except (ValueError, RecursionError) as error:
        raise UnreadableColumn(column, f"not JSON ({str(error)[:60]})") from error
    if not isinstance(items, list):
        raise UnreadableColumn(column, f"expected a list, found {type(items).__name__}")
    return items


def _read_made_call(call: Json) -> tuple[str, Json]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise UnreadableColumn("messages", "a tool call without a function")
    written = function.get("arguments")
    try:
        arguments = json.loads(written) if isinstance(written, str) else written
    except (ValueError, RecursionError) as error:
        raise UnreadableColumn("messages", "a call's arguments are not JSON") from error
    return str(function.get("name")), arguments


Contracts = Mapping[str, JsonObject]
Findings = Iterable[PairFinding]


def verify_row(row: Row, contracts: Contracts) -> RulesVerdict:
    """The rules' verdict on one row of PAIRS. `contracts` (by digest) holds all that it names."""
    check = _CHECKS.get(str(row.get("task")))
    if check is None:
        return decide(
            [PairFinding("unreadable_row", "task", f"no such task: {row.get('task')!r:.60}")]
        )
    try:
        conversation = read_conversation(row)
    except UnreadableColumn as error:
        return decide([PairFinding("unreadable_row", error.column, str(error))])
    digest = str(row.get("contract_digest"))
    needed = {digest, *conversation.offered}
    needed |= {golden.contract_digest for golden in conversation.calls}
    if absent := sorted(needed - contracts.keys()):
        return decide([PairFinding("unknown_contract", "", f"{absent[0][:12]} is not at hand")])
    return decide(check(conversation, digest, contracts))


def _check_several(conversation: PairConversation, digest: str, contracts: Contracts) -> Findings:
    """Each call against its own contract, over one text."""
    if not conversation.calls:
        yield PairFinding("missing_call", "calls", "the row has no call")
    for number, golden in enumerate(conversation.calls):
        contract = contracts[golden.contract_digest]
        yield from find_call_flaws(contract, golden.arguments)
        yield from find_form_flaws(contract, conversation.text, golden.server_id)
        stated_arguments = {n: v for n, v in golden.arguments.items() if n not in golden.borrowed}
        yield from find_ungrounded(contract, RequestText(conversation.text), stated_arguments)
        yield from find_echo(contract, conversation.text, golden.arguments)
        if golden.borrowed:
            results = RequestText("\n".join(conversation.results[:number]))
            for name in golden.borrowed:
                if name not in golden.arguments:
                    yield PairFinding("not_borrowed", name, "borrowed, but not among the arguments")
                elif number == 0:
                    yield PairFinding(
                        "not_borrowed", name, "the first call has nothing to borrow from"
                    )
                elif (how := find_worst_grade(name, golden.arguments[name], results)) != STATED:
                    reason = f"not in an earlier result ({how})"
                    yield PairFinding("not_borrowed", name, reason, certain=how == ABSENT)
    right = [(golden.tool, golden.arguments) for golden in conversation.calls]
    if conversation.made and conversation.made[-len(right) :] != right:
        yield PairFinding("messages_differ", "messages", "its calls are not those of `calls`")


def _check_at_least(
    least: int, conversation: PairConversation, digest: str, contracts: Contracts
) -> Findings:
    if len(conversation.calls) < least:
        problem = f"{len(conversation.calls)} calls, expected at least {least}"
        yield PairFinding("missing_call", "calls", problem)
    yield from _check_several(conversation, digest, contracts)


def _check_no_tool(conversation: PairConversation, own: str, contracts: Contracts) -> Findings:
    """No offered tool is right. Rules see a tool that is named, or one whose work is spoken of."""
    yield from _check_no_call(conversation)
    if not conversation.messages or conversation.messages[-1][0] != "assistant":
        yield PairFinding("no_reply", "messages", "the conversation does not end with an answer")
    request = RequestText(conversation.text)
    for digest in conversation.offered or [own]:
        contract = contracts[digest]
        yield from find_form_flaws(contract, conversation.text, "")
        work = _find_work_words(contract)
        if work and sum(word in request.tokens for word in work) / len(work) >= 0.67:
            spoken = " ".join(sorted(work))
            yield PairFinding("may_need_a_tool", "", f"speaks of {spoken}", certain=False)


def _find_work_words(contract: Contract) -> set[str]:
    words = [word for word in split_identifier(str(contract.get("name") or "")) if len(word) > 2]
    if len(words) < 2:
        aim = read_purpose(contract)
        words = [aim.verb, *aim.rest.split()]
    return {stem_word(word.lower()) for word in words if word.isalpha() and len(word) > 2}


def _check_no_call(conversation: PairConversation) -> Findings:
    if conversation.calls or conversation.made:
        yield PairFinding("unexpected_call", "calls", "no call is right here, but there is one")


def _check_question(message: tuple[str, str] | None) -> Findings:
    role, text = message or ("", "")
    if role != "assistant" or not is_question(text):
        yield PairFinding("no_question", "messages", "the assistant asks nothing")


def _check_missing(conversation: PairConversation, digest: str, contracts: Contracts) -> Findings:
    """A required value is absent, and the assistant asks instead of calling."""
    yield from _check_no_call(conversation)
    yield from _check_question(conversation.messages[-1] if conversation.messages else None)
    yield from find_form_flaws(contracts[digest], conversation.text, "")
    if not get_required(contracts[digest]):
        yield PairFinding("nothing_missing", "", "the tool requires no value")


def _check_clarification(
    conversation: PairConversation, digest: str, contracts: Contracts
) -> Findings:
    """As a missing parameter first; after the answer, the call over all that the user said."""
    question = next((m for m in conversation.messages if m[0] == "assistant"), None)
    yield from _check_question(question)
    if len(conversation.user) < 2:
        yield PairFinding("no_answer", "messages", "the user never answers the question")
    if conversation.calls:
        golden = conversation.calls[-1]
        first = RequestText(conversation.user[0] if conversation.user else conversation.text)
        contract = contracts[golden.contract_digest]
        required = [n for n in get_required(contract) if n in golden.arguments]
        grades = {find_worst_grade(n, golden.arguments[n], first, contract) for n in required}
        if not grades - {STATED}:
            yield PairFinding(
                "nothing_missing", "", "the first message states every required value"
            )
    yield from _check_several(conversation, digest, contracts)


def _check_recovery(conversation: PairConversation, digest: str, contracts: Contracts) -> Findings:
    """The first call fails, the tool says so, the last is right; an explored objection may fit."""
    if len(conversation.made) < 2:
        yield PairFinding("missing_call", "messages", "expected a wrong call and a repaired one")
    elif conversation.calls:
        contract = contracts[conversation.calls[-1].contract_digest]
        flaws = validate_call(contract, conversation.made[0][1])
        error = conversation.results[0] if conversation.results else ""
        answer = RequestText(error).squeezed
        if not flaws and conversation.basis in (EXPLORED, TRACE):
            if not error or conversation.made[0] == conversation.made[-1]:
                yield PairFinding("no_error", "messages", "no server objects to the first call")
        elif not flaws:
            yield PairFinding("no_error", "messages", "the first call fits the contract")
        elif not any(_holds_error(flaw.message, flaw.path, answer) for flaw in flaws):
            yield PairFinding("no_error", "messages", "the tool's message does not hold the error")
    yield from _check_several(conversation, digest, contracts)


def _holds_error(message: str, path: str, squeezed: str) -> bool:
    letters = "".join(char for char in message.casefold() if char.isalnum())
    return letters[:120] in squeezed or (
        path != "" and stem_word(path.split(".")[-1].lower()) in squeezed
    )


_CHECKS: dict[str, Callable[[PairConversation, str, Contracts], Findings]] = {
    SINGLE: partial(_check_at_least, 1),
    LOOKALIKE: partial(_check_at_least, 1),
    PARALLEL: partial(_check_at_least, 2),
    SEQUENTIAL: partial(_check_at_least, 2),
    NO_TOOL: _check_no_tool,
    MISSING: _check_missing,
    CLARIFY: _check_clarification,
    RECOVERY: _check_recovery,
}
