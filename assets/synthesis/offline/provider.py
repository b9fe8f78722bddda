"""The offline provider: dispatches each role's request to the function that answers it, and writes
requests without a call: those that no tool serves, and those that first lack a value.

(role, answer's schema) -> a function of `meta` and seed -> the answer's JSON
"""

import json
import random
from collections.abc import Callable, Mapping

from pydantic import BaseModel

from assets.contracts.schema_shapes import TooMuchWork, limit_steps
from assets.synthesis.contract_reading import ParameterSlot, get_input_schema, read_slots
from assets.synthesis.offline.choice import answer_choice, choose_tool, extract_terms
from assets.synthesis.offline.requests import (
    LANGUAGE,
    answer_call,
    answer_requests,
    answer_several,
    answer_worded,
    make_request,
    read_phrases,
)
from assets.synthesis.offline.values import draw_new_value
from assets.synthesis.offline.wording import (
    FilledSlot,
    find_absent,
    join_list,
    say_plainly,
    say_value,
)
from assets.synthesis.policy import get_offline_version
from assets.synthesis.role_schemas import (
    CallArguments,
    IncompleteRequest,
    MultiCallRequest,
    RequestDrafts,
    RewrittenRequest,
    ToolChoice,
    ToollessRequest,
)
from assets.synthesis.verify.words import stem_word
from assets.vectors.lexicon import list_pool, split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.llm.client import LLMError, ModelCompletion, ModelRequest
from warehouse.storage.digest import digest


def answer_aside(meta: JsonObject, seed: int) -> Json:
    """The generator's reply: small talk, sums in the head, taste, or another line of work."""
    contracts = list(meta["contracts"])
    rng = random.Random(digest(["aside", contracts, meta.get("profile"), seed]))
    names = [word for c in contracts for word in split_identifier(str(c.get("name") or ""))]
    about = [str(c.get("description") or "")[:600] for c in contracts]
    terms = set(extract_terms(" ".join([*names, *about])))
    for item in meta.get("elsewhere") or ():
        request = make_request(
            item["contract"], "direct", rng, meta.get("profile"), given=item["arguments"]
        )["instruction"]
        if not choose_tool(contracts, request)[0]:
            reply = rng.choice(read_phrases()["out_of_reach"])
            return {"instruction": request, "reply": reply, "language": LANGUAGE}
    # The fewest words in common first; a set of tools may well speak of everything.
    kinds = sorted(
        read_phrases()["asides"],
        key=lambda k: (len(terms & set(map(stem_word, k["about"]))), rng.random()),
    )
    for kind in kinds:
        for ask in rng.sample(kind["ask"], len(kind["ask"])):
            reply = _fill_phrase(kind, ask, rng)
            request = reply["instruction"]
            if not terms & set(extract_terms(request)) and not choose_tool(contracts, request)[0]:
                return reply
    # Every aside shares a word with some tool: the first kind shares the least with them.
    return _fill_phrase(kinds[0], kinds[0]["ask"][0], rng)


def _fill_phrase(kind: JsonObject, ask: str, rng: random.Random) -> dict[str, str]:
    """A phrase with the numbers of a sum done in the head, and its result."""
    a, b = rng.randint(11, 49), rng.randint(6, 29)
    facts = {"product": (a, b, a * b), "tenth": (a * 10, b, a), "mean": (a, a + 2 * b, a + b)}.get(
        str(kind.get("make")), (a, b, a + b)
    )
    words = [*zip("abc", map(str, facts), strict=True), ("first", rng.choice(list_pool("first")))]
    reply = kind["reply"][kind["ask"].index(ask) % len(kind["reply"])]
    for name, value in words:
        ask, reply = ask.replace(f"{{{name}}}", value), reply.replace(f"{{{name}}}", value)
    return {"instruction": ask, "reply": reply, "language": LANGUAGE}


_ATTEMPTS = 8


def answer_vague(meta: JsonObject, seed: int) -> Json:
    """The generator's reply for the parameter that is to be missing."""
    contract, name = meta["contract"], str(meta["parameter"])
    rng = random.Random(digest(["vague", contract, name, seed]))
    root = get_input_schema(contract)
    slot = next((slot for slot in read_slots(contract) if slot.name == name), None)
    slot = slot or ParameterSlot(name, {"type": "string"}, True, (name,), "")
    call = meta.get("explored")
    given = {key: value for key, value in call.items() if key != name} if call else None
    for _ in range(_ATTEMPTS):
        draft = make_request(
            contract, "direct", rng, meta.get("profile"), without=(name,), given=given
        )
        drawn = draw_new_value(slot, root, rng, draft["values"].values())
        item = FilledSlot(slot, call[name] if call else drawn)
        values = {**draft["values"], name: item.value}
        # Drawn until the text really lacks it: a city may stand in the tool's own words.
        if name in find_absent(contract, draft["instruction"], values):
            break
    return {
        "instruction": draft["instruction"],
        "question": _make_question(item, rng, list(meta.get("options") or ())),
        "answer": _make_answer(contract, draft["instruction"], values, item, rng),
        "values": values,
        "language": LANGUAGE,
    }


def _make_question(item: FilledSlot, rng: random.Random, either: list[Json]) -> str:
    """either: values of which each would do, named in an order that tells nothing."""
    phrases = read_phrases()
    options = rng.sample(either, len(either)) or item.slot.choices
    choices = [str(option) for option in options if option not in (None, "")]
    if 1 < len(choices) <= 6:
        listing = f"{', '.join(choices[:-1])} or {choices[-1]}"
        form = rng.choice(phrases["choices"])
        return form.replace("{l}", item.label).replace("{c}", listing)
    return rng.choice(phrases["questions"]).replace("{l}", item.label)


def _make_answer(
    contract: Contract, request: str, values: JsonObject, item: FilledSlot, rng: random.Random
) -> str:
    value, text = item.value, ""
    if isinstance(value, list) and not any(isinstance(v, (dict, list)) for v in value):
        text = join_list([say_value(v, rng, False) for v in value], rng)
    elif not isinstance(value, (bool, dict, list)):
        text = say_value(value, rng, False)
    answer = rng.choice(read_phrases()["answers"]).replace("{v}", text)
    if not text or item.slot.name in find_absent(contract, f"{request}\n{answer}", values):
        plain = say_plainly(item)
        return f"{plain[0].upper()}{plain[1:]}."
    return answer


Answer = Callable[[JsonObject, int], Json]

# Some 2 s. A contract of 12 members that each require all of it again drew 14,439 values for three
# requests, and took 11 s of everybody's event loop.
_MAX_STEPS = 100_000
# By the answer's model: one role may be asked for several kinds of answer.
_BY_SCHEMA: dict[type[BaseModel], Answer] = {
    ToolChoice: answer_choice,
    RequestDrafts: answer_requests,
    MultiCallRequest: answer_several,
    ToollessRequest: answer_aside,
    IncompleteRequest: answer_vague,
    RewrittenRequest: answer_worded,
    CallArguments: answer_call,
}


class OfflineProvider:
    """Answers every role from the request's `meta`. answers: functions by role that go first."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self._answers = dict(answers or {})

    def version(self) -> str:
        return f"offline-{get_offline_version()}"

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        try:
            with limit_steps(_MAX_STEPS):
                reply = self._make_reply(request)
        except TooMuchWork as error:
            problem = f"more than {_MAX_STEPS:,} steps for one answer"
            hint = "the contract asks for more than a request can say"
            raise LLMError("bad_request", problem, "a contract of usual size", hint) from error
        text = json.dumps(reply, ensure_ascii=False)
        return ModelCompletion(text=text, finish="stop", model=self.version())

    def _make_reply(self, request: ModelRequest) -> Json:
        name, schema = request.role.name, request.schema
        answer = self._answers.get(name) or _BY_SCHEMA.get(schema)
        if answer is None:
            expected = f"one of {', '.join(sorted(kind.__name__ for kind in _BY_SCHEMA))}"
            hint = "inject an answer for this role, or give the role a model"
            problem = f"role {name!r} asked for {schema.__name__}"
            raise LLMError("no_provider", problem, expected, hint)
        return answer(request.meta, request.seed)
