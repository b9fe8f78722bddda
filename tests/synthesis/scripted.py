"""A scripted model for every role, and the units of a small marketplace."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assets.synthesis.judging.judge import make_offline_provider
from assets.synthesis.judging.rules_judge import CRITERIA
from assets.synthesis.offline.provider import answer_aside, answer_requests, answer_vague
from assets.synthesis.offline.requests import answer_several, evolve_request, revise_request
from assets.synthesis.policy import SynthesisPolicy, TaskShares
from assets.synthesis.prompts import read_prompt
from assets.synthesis.tables import PAIRS, SINGLE, TASKS
from assets.synthesis.writing.plan import compose_rows
from assets.synthesis.writing.units import WritingUnit, make_units
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.contracts import ALL, TEXT, make_tool
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, Role
from warehouse.llm.endpoint import OpenAIEndpoint

Json = Any
Row = Mapping[str, Any]
ROLES = (
    "generator", "reviser", "evolver", "caller", "checker_a", "checker_b", "judge", "actor",
)  # fmt: skip
NAMES = (
    "generate", "revise", "evolve", "call", "repair", "several", "no_tool", "missing", "act",
    "choose", "judge",
)  # fmt: skip
NO_TASKS: dict[str, float] = dict.fromkeys(map(str, TASKS[1:]), 0.0)
EVERY_TASK: dict[str, float] = dict.fromkeys(map(str, TASKS[1:]), 1.0)
_ID = {"type": "string", "description": "as the search returns it"}
FIND_TICKET = make_tool(
    "search_tickets",
    "Search the tickets of a help desk by a word in their subject.",
    {"word": TEXT},
    "word",
)
CLOSE_TICKET = make_tool(
    "close_ticket",
    "Close a ticket for good.",
    {"ticket_id": _ID, "note": TEXT},
    "ticket_id",
    additionalProperties=False,
)
MARKET = [*ALL, FIND_TICKET, CLOSE_TICKET]  # a tool for every task
SINGLES = SynthesisPolicy(tasks=TaskShares(**NO_TASKS), checks=False, evolve_share=0.0)
ONE = replace(SINGLES, pairs_per_tool=1)
ALL_TASKS = SynthesisPolicy(tasks=TaskShares(**EVERY_TASK))


def offline_llm(ledger: Ledger) -> LLM:
    roles = [Role(name, temperature=0.0) for name in ROLES]
    return LLM(roles, ledger, offline=make_offline_provider())


def model_llm(ledger: Ledger, url: str, *, second: str | None = None, **settings: Any) -> LLM:
    """Every role at one endpoint on loopback; `second` is the model of the second checker."""
    shared = {"model": "m-1", "base_url": url, "api_key": "k", "attempts": 2, "timeout_s": 5.0}
    base = {"checker_b": {"model": second}} if second else {}
    roles = [Role(name, **{**shared, **settings, **base.get(name, {})}) for name in ROLES]
    return LLM(roles, ledger, endpoint=OpenAIEndpoint(backoff_s=0.01))


def others(rows: Sequence[Row], most: int = 3) -> Callable[[Row], list[Row]]:
    """Neighbours for tests: the first few tools of another text."""
    return lambda row: [
        item for item in rows if item["contract_digest"] != row["contract_digest"]
    ][:most]  # fmt: skip


def planned(
    rows: Sequence[Row], policy: SynthesisPolicy = SINGLES, near: Any = lambda _: []
) -> list[WritingUnit]:
    """The units of a marketplace that has these rows."""
    return make_units(rows, near, policy)


def only(answer: Sequence[WritingUnit], task: str) -> list[WritingUnit]:
    return [unit for unit in answer if unit.task == task]


def write_one(
    ledger: Ledger,
    rows: Sequence[Row],
    policy: SynthesisPolicy = ONE,
    task: str = SINGLE,
    *,
    model: Mapping[str, Any] = {},
    **answers: Any,
) -> tuple[dict[str, Json], list[str]]:
    """The first row of a task through a scripted endpoint, and the prompts that were asked."""
    units = only(planned(rows, policy, others(rows)), task)[:1]
    with openai_endpoint(scripted(**answers)) as endpoint:
        [row] = compose_rows(units, model_llm(ledger, endpoint.url, **model), policy)
        asked = [asked_of(body) for body in endpoint.requests]
    PAIRS.frame([row])
    return row, asked


def asked_of(body: Mapping[str, Json]) -> str:
    """The name of the prompt that a request was made with, whatever was edited at its end."""
    content = body["messages"][0]["content"]
    return next(name for name in NAMES if content[:40] == read_prompt(name).system[:40])


def data_of(body: Mapping[str, Json]) -> dict[str, str]:
    """The data of a request by the names of its markers."""
    text = body["messages"][1]["content"]
    mark = re.search(r"DATA-\w+", text)
    assert mark, text[:200]
    result = re.findall(
        rf"^BEGIN {mark[0]} (.+?)\n(.*?)\nEND {mark[0]} \1$", text, re.DOTALL | re.MULTILINE
    )
    return dict(result)


def tools_in(text: str) -> list[dict[str, Json]]:
    """The contracts of a list of numbered tools."""
    return [json.loads(part) for part in re.split(r"(?:\n\n)?^Tool \d+:\n", text, flags=re.M)[1:]]


def scripted(
    **answers: Callable[[Mapping[str, Json], dict[str, str]], Json],
) -> Callable[[dict[str, Json], int], Say]:
    """An endpoint's script: `answers` by prompt name get (body, data) and return JSON, text or a
    Say; prompts without one are answered by the grammar."""

    def script(body: dict[str, Json], _number: int) -> Say:
        name = asked_of(body)
        data = data_of(body) if name != "judge" else {}
        answer = answers.get(name, _BY_GRAMMAR[name])
        result = answer(body, data)
        if isinstance(result, Say):
            return result
        return Say(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))

    return script


def _generated(body: Mapping[str, Json], data: dict[str, str]) -> Json:
    orders = re.findall(r"^\d+\. kind: (\w+)", body["messages"][1]["content"], re.MULTILINE)
    meta = {"contract": json.loads(data["tool"]), "count": len(orders), "kinds": orders}
    result = answer_requests(meta, body["seed"])
    for item in result["requests"]:
        VALUES[_squeeze(item["instruction"])] = item["values"]
    return result


def _called(_: Mapping[str, Json], data: dict[str, str]) -> Json:
    """A caller that has the values: those that the grammar wrote the request around."""
    contract = json.loads(data["tool"])
    return {"arguments": VALUES.get(_squeeze(data["request"]), {"n": contract["name"]})}


def _evolved(_: Mapping[str, Json], data: dict[str, str]) -> Json:
    values = json.loads(data["values"])
    result = evolve_request(
        {"instruction": data["request"], "values": values, "direction": "reason"}, 0
    )
    VALUES[_squeeze(result["instruction"])] = values
    return result


def _revised(_: Mapping[str, Json], data: dict[str, str]) -> Json:
    meta = {"contract": json.loads(data["tool"]), "instruction": data["request"]}
    meta["values"] = json.loads(data["values that were meant"])
    meta["absent"] = data["absent parameters"].split(", ")
    result = revise_request(meta, 0)
    VALUES[_squeeze(result["instruction"])] = result["values"]
    return result


def _several(body: Mapping[str, Json], data: dict[str, str]) -> Json:
    shape = re.search(r"The shape is (\w+)", body["messages"][1]["content"])
    assert shape
    result = answer_several({"contracts": tools_in(data["tools"])}, body["seed"])
    if shape[1] == "sequential":  # the last call takes a value that an earlier one is to return
        last = result["calls"][-1]
        last["borrowed"] = list(last["arguments"])[:1]
        stated = [value for call in result["calls"] for name, value in call["arguments"].items()
                  if name not in call.get("borrowed", ())]  # fmt: skip
        result["instruction"] = f"Start with {stated}, then go on with whatever comes back."
    return result


def _missing(body: Mapping[str, Json], data: dict[str, str]) -> Json:
    name = data["parameter that is left out"]
    result = answer_vague({"contract": json.loads(data["tool"]), "parameter": name}, body["seed"])
    whole = f"{result['instruction']}\n{result['question']}\n{result['answer']}"
    VALUES[_squeeze(whole)] = result["values"]
    return result


def _acted(_: Mapping[str, Json], data: dict[str, str]) -> Json:
    holds = json.loads(data["values that the result must hold"])
    return {"content": json.dumps({"status": "ok", **holds})}


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _chosen(_: Mapping[str, Json], data: dict[str, str]) -> Json:
    """A checker that finds the tool by what the request was written for."""
    values = VALUES.get(_squeeze(data["request"]), {})
    tools = {name: text for name, text in data.items() if name.startswith("tool ")}
    takes = {
        name: json.loads(text)["inputSchema"].get("properties", {}) for name, text in tools.items()
    }
    fits = [name for name, properties in takes.items() if values.keys() <= properties.keys()]
    return {"reason": "it takes that", "tool": int(fits[0].split()[1]) if fits else 0}


VALUES: dict[str, Json] = {}  # what each written request was written around
_BY_GRAMMAR: dict[str, Callable[[Mapping[str, Json], dict[str, str]], Json]] = {
    "generate": _generated,
    "revise": _revised,
    "evolve": _evolved,
    "call": _called,
    "repair": _called,
    "several": _several,
    "no_tool": lambda body, data: answer_aside(
        {"contracts": tools_in(data["tools"])}, body["seed"]
    ),
    "missing": _missing,
    "act": _acted,
    "choose": _chosen,
    "judge": lambda body, data: {"reasons": "fine", **dict.fromkeys(CRITERIA, 8), "score": 8},
}
