"""Rules for a whole row, whatever its task: one call, several, none, asked for first, repaired.

Several calls share one text. A value that an earlier call's result supplies (`borrowed`) is looked
for in the tool messages, never in the text. Nothing here raises on odd input: a row that cannot be
read is a finding.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import get_required
from assets.synthesis.common.purpose import read_purpose
from assets.synthesis.common.tables import (
    CLARIFY,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    Golden,
)
from assets.synthesis.verify.checks.description_echo import find_echo
from assets.synthesis.verify.checks.request_form import find_form_flaws
from assets.synthesis.verify.conversation import (
    Conversation,
    Unreadable,
    is_question,
    read_conversation,
)
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.grounding import ABSENT, STATED, Text, stem_word
from assets.synthesis.verify.verify import (
    Verification,
    decide,
    find_call_flaws,
    find_ungrounded,
    find_worst_grade,
)
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, JsonObject, Row

Contracts = Mapping[str, JsonObject]
Findings = Iterable[Finding]


def verify_row(row: Row, contracts: Contracts) -> Verification:
    """The rules' verdict on one row of PAIRS. `contracts` (by digest) holds all that it names."""
    check = _CHECKS.get(str(row.get("task")))
    if check is None:
        return decide([Finding("unreadable_row", "task", f"no such task: {row.get('task')!r:.60}")])
    try:
        conversation = read_conversation(row)
    except Unreadable as error:
        return decide([Finding("unreadable_row", error.column, str(error))])
    own = str(row.get("contract_digest"))
    needed = {own, *conversation.offered}
    needed |= {golden.contract_digest for golden in conversation.calls}
    if absent := sorted(needed - contracts.keys()):
        return decide([Finding("unknown_contract", "", f"{absent[0][:12]} is not at hand")])
    return decide(check(conversation, own, contracts))


def _check_several(conversation: Conversation, own: str, contracts: Contracts) -> Findings:
    """Each call against its own contract, over one text."""
    if not conversation.calls:
        yield Finding("missing_call", "calls", "the row has no call")
    for number, golden in enumerate(conversation.calls):
        yield from _check_one(conversation.text, golden, contracts[golden.contract_digest])
        if golden.borrowed:
            yield from _check_borrowed(conversation, number, golden)
    yield from _check_agreement(conversation)


def _check_one(text: str, golden: Golden, contract: Contract) -> Findings:
    yield from find_call_flaws(contract, golden.arguments)
    yield from find_form_flaws(contract, text, golden.server_id)
    own = {n: v for n, v in golden.arguments.items() if n not in golden.borrowed}
    yield from find_ungrounded(contract, Text(text), own)
    yield from find_echo(contract, text, golden.arguments)


def _check_borrowed(conversation: Conversation, number: int, golden: Golden) -> Findings:
    """What a call takes from earlier results must stand in them."""
    results = Text("\n".join(conversation.results[:number]))
    for name in golden.borrowed:
        if name not in golden.arguments:
            yield Finding("not_borrowed", name, "borrowed, but not among the arguments")
        elif number == 0:
            yield Finding("not_borrowed", name, "the first call has nothing to borrow from")
        elif (how := find_worst_grade(name, golden.arguments[name], results)) != STATED:
            reason = f"not in an earlier result ({how})"
            yield Finding("not_borrowed", name, reason, certain=how == ABSENT)


def _check_at_least(
    least: int, conversation: Conversation, own: str, contracts: Contracts
) -> Findings:
    if len(conversation.calls) < least:
        found = f"{len(conversation.calls)} calls, expected at least {least}"
        yield Finding("missing_call", "calls", found)
    yield from _check_several(conversation, own, contracts)


def _check_agreement(conversation: Conversation) -> Findings:
    """The conversation must hold the calls of `calls`, these last and in this order."""
    right = [(golden.tool, golden.arguments) for golden in conversation.calls]
    if conversation.made and conversation.made[-len(right) :] != right:
        yield Finding("messages_differ", "messages", "its calls are not those of `calls`")


def _check_no_tool(conversation: Conversation, own: str, contracts: Contracts) -> Findings:
    """No offered tool is right. Rules see a tool that is named, or one whose work is spoken of."""
    yield from _check_no_call(conversation)
    if not conversation.messages or conversation.messages[-1][0] != "assistant":
        yield Finding("no_reply", "messages", "the conversation does not end with an answer")
    held = Text(conversation.text)
    for digest in conversation.offered or [own]:
        contract = contracts[digest]
        yield from find_form_flaws(contract, conversation.text, "")
        work = _find_work_words(contract)
        if work and sum(word in held.tokens for word in work) / len(work) >= 0.67:
            spoken = " ".join(sorted(work))
            yield Finding("may_need_a_tool", "", f"speaks of {spoken}", certain=False)


def _find_work_words(contract: Contract) -> set[str]:
    """The stems of the words that say what a tool does, out of its name and its purpose."""
    words = [word for word in split_identifier(str(contract.get("name") or "")) if len(word) > 2]
    if len(words) < 2:
        aim = read_purpose(contract)
        words = [aim.verb, *aim.rest.split()]
    return {stem_word(word.lower()) for word in words if word.isalpha() and len(word) > 2}


def _check_no_call(conversation: Conversation) -> Findings:
    if conversation.calls or conversation.made:
        yield Finding("unexpected_call", "calls", "no call is right here, but there is one")


def _check_question(message: tuple[str, str] | None) -> Findings:
    role, text = message or ("", "")
    if role != "assistant" or not is_question(text):
        yield Finding("no_question", "messages", "the assistant asks nothing")


def _check_missing(conversation: Conversation, own: str, contracts: Contracts) -> Findings:
    """A required value is absent, and the assistant asks instead of calling."""
    yield from _check_no_call(conversation)
    yield from _check_question(conversation.messages[-1] if conversation.messages else None)
    yield from find_form_flaws(contracts[own], conversation.text, "")
    if not get_required(contracts[own]):
        yield Finding("nothing_missing", "", "the tool requires no value")


def _check_clarification(conversation: Conversation, own: str, contracts: Contracts) -> Findings:
    """As a missing parameter first; after the answer, the call over all that the user said."""
    asked = next((m for m in conversation.messages if m[0] == "assistant"), None)
    yield from _check_question(asked)
    if len(conversation.user) < 2:
        yield Finding("no_answer", "messages", "the user never answers the question")
    if conversation.calls:
        golden = conversation.calls[-1]
        first = Text(conversation.user[0] if conversation.user else conversation.text)
        contract = contracts[golden.contract_digest]
        required = [n for n in get_required(contract) if n in golden.arguments]
        grades = {find_worst_grade(n, golden.arguments[n], first, contract) for n in required}
        if not grades - {STATED}:
            yield Finding("nothing_missing", "", "the first message states every required value")
    yield from _check_several(conversation, own, contracts)


def _check_recovery(conversation: Conversation, own: str, contracts: Contracts) -> Findings:
    """The first call really fails, the tool says so, and the last call is the right one."""
    if len(conversation.made) < 2:
        yield Finding("missing_call", "messages", "expected a wrong call and a repaired one")
    elif conversation.calls:
        contract = contracts[conversation.calls[-1].contract_digest]
        flaws = validate_call(contract, conversation.made[0][1])
        error = conversation.results[0] if conversation.results else ""
        answer = Text(error).squeezed
        if not flaws:
            yield Finding("no_error", "messages", "the first call fits the contract")
        elif not any(_holds_error(flaw.message, flaw.path, answer) for flaw in flaws):
            yield Finding("no_error", "messages", "the tool's message does not hold the error")
    yield from _check_several(conversation, own, contracts)


def _holds_error(message: str, path: str, squeezed: str) -> bool:
    letters = "".join(char for char in message.casefold() if char.isalnum())
    return letters[:120] in squeezed or (
        path != "" and stem_word(path.split(".")[-1].lower()) in squeezed
    )


_CHECKS: dict[str, Callable[[Conversation, str, Contracts], Findings]] = {
    SINGLE: partial(_check_at_least, 1),
    LOOKALIKE: partial(_check_at_least, 1),
    PARALLEL: partial(_check_at_least, 2),
    SEQUENTIAL: partial(_check_at_least, 2),
    NO_TOOL: _check_no_tool,
    MISSING: _check_missing,
    CLARIFY: _check_clarification,
    RECOVERY: _check_recovery,
}
