"""Flaws on purpose: one mechanical mutant of a good pair per kind of flaw."""

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import purpose
from assets.synthesis.common.tables import Golden, goldens, text_of
from assets.synthesis.verify.verify import verify
from assets.vectors.lexicon import words_of

Json = Any
Pair = dict[str, Json]
Contract = Mapping[str, Json]
# All that the corpus of labelled flaws knows; the last three only sense can tell.
FLAWS = (
    "missing_required_argument", "unknown_argument", "wrong_type", "ungrounded_value",
    "missing_required_value", "names_the_tool", "not_an_instruction", "copies_description",
    "unrealistic", "wrong_tool",
)  # fmt: skip


def mutants(
    row: Pair, contract: Contract, contracts: Mapping[str, Contract], rng: random.Random
) -> list[dict[str, Json]]:
    """One mutant per flaw kind that this row of one call allows: [{flaw, pair}]. The row is left
    alone."""
    made: list[dict[str, Json]] = []
    for flaw, mutate in _MUTATIONS.items():
        arguments = json.loads(row["arguments"])
        changed = mutate(row["instruction"], arguments, contract, rng)
        if changed is None:
            continue
        text, call = changed
        if (text, call) != (row["instruction"], json.loads(row["arguments"])):
            made.append({"flaw": flaw, "pair": rewritten(row, text, call)})
    other = _stranger(row, contracts, rng)
    if other is not None:
        made.append({"flaw": "wrong_tool", "pair": redirected(row, other, contracts[other])})
    return made


def rewritten(row: Pair, text: str, arguments: Mapping[str, Json]) -> Pair:
    """The row of one call with another request and other arguments, in every column that says
    them."""
    calls = [vars(one) for one in goldens(row)] if row.get("calls") else []
    calls = [{**one, "arguments": dict(arguments)} for one in calls]
    changed = {"instruction": text, "arguments": text_of(arguments), "calls": text_of(calls)}
    return {**row, **changed, "messages": _talk(row, text, calls)}


def redirected(row: Pair, digest: str, contract: Contract) -> Pair:
    """The row of one call with its call sent to another tool, which is offered beside its own."""
    offered = {row["contract_digest"], digest, *json.loads(row.get("offered") or "[]")}
    call = Golden(row["server_id"], str(contract.get("name")), digest, json.loads(row["arguments"]))
    calls = [vars(call)]
    return {
        **row,
        "tool": call.tool,
        "contract_digest": digest,
        "calls": text_of(calls),
        "offered": text_of(sorted(offered)),
        "messages": _talk(row, row["instruction"], calls),
    }


def _talk(row: Pair, text: str, calls: list[dict[str, Json]]) -> str | None:
    """The conversation of one call: the request and the call; what followed is left out, for it
    answered another call."""
    if not row.get("messages"):
        return row.get("messages")
    made = [
        {"id": f"call_{n}", "type": "function", "function": {"name": c["tool"],
         "arguments": text_of(c["arguments"])}}
        for n, c in enumerate(calls, 1)
    ]  # fmt: skip
    asked = {"role": "user", "content": text}
    return text_of([asked, {"role": "assistant", "content": None, "tool_calls": made}])


Changed = tuple[str, dict[str, Json]] | None


Mutation = Callable[[str, dict[str, Json], Contract, random.Random], Changed]


def _required(arguments: Mapping[str, Json], contract: Contract) -> list[str]:
    return [name for name in contract["inputSchema"].get("required") or [] if name in arguments]


def _missing_argument(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    names = _required(call, contract)
    if not names:
        return None
    gone = rng.choice(names)
    return text, {name: value for name, value in call.items() if name != gone}


def _unknown_argument(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    if contract["inputSchema"].get("additionalProperties") not in (None, False):
        return None
    name = rng.choice(["verbose", "output_format", "apiVersion", "userId", "extra"])
    declared = contract["inputSchema"].get("properties") or {}
    return None if name in declared else (text, {**call, name: rng.choice(["true", "json", 1])})


def _wrong_type(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    declared = contract["inputSchema"].get("properties") or {}
    typed = {n: declared[n].get("type") for n in call if isinstance(declared.get(n), Mapping)}
    names = [name for name, kind in typed.items() if isinstance(kind, str) and kind in _WRONG]
    if not names:
        return None
    name = rng.choice(names)
    return text, {**call, name: _WRONG[typed[name]](call[name])}


_WRONG: dict[str, Callable[[Json], Json]] = {
    "string": lambda value: {"value": value},
    "integer": lambda value: f"{value} units",
    "number": lambda value: f"about {value}",
    "boolean": lambda value: "yes" if value else "no",
    "array": lambda value: {"items": value},
    "object": lambda value: json.dumps(value),
}


def _ungrounded(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    names = [n for n in _required(call, contract) if _stated_scalar(call[n], text)]
    if not names:
        return None
    name = rng.choice(names)
    value = call[name]
    if isinstance(value, (int, float)):
        other = {**call, name: value * 3 + 17}
        return None if validate_call(contract, other) else (text, other)
    shifted = value.translate(_SHIFT)  # of the same shape, for patterns and lengths
    changed = ({**call, name: other} for other in (rng.choice(_OTHER), shifted))
    valid = next((c for c in changed if not validate_call(contract, c)), None)
    return None if valid is None else (text, valid)


_SHIFT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM3456789012",
)


_OTHER = ("quillfeather", "zanzibar-0417", "mossgrove", "/opt/umber/kelp.dat")


def _missing_value(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    names = [n for n in _required(call, contract) if _stated_scalar(call[n], text)]
    if not names:
        return None
    name = rng.choice(names)
    spoken = str(call[name])
    vague = rng.choice(["it", "that one", "the usual one", "the one we talked about"])
    return re.sub(rf"['\"]?{re.escape(spoken)}['\"]?", vague, text), call


def _stated_scalar(value: Json, text: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
        return False
    spoken = str(value)
    return len(spoken) > 2 and text.count(spoken) == 1


def _names_tool(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    name = contract["name"]
    if len(words_of(name)) < 2:
        return f"Use the {name} tool: {text}", call
    return rng.choice([f"Use the {name} tool. {text}", f"Call {name}: {text}"]), call


def _meta_talk(text: str, call: dict[str, Json], contract: Contract, rng: random.Random) -> Changed:
    turns = (
        "Sure! Here is a request for that: {t}",
        "The user wants the following: {t} The arguments should be set accordingly.",
        "I'm sorry, but I can't do that without more information.",
        "As an AI language model, I would suggest: {t}",
        "{t} Let me know if you need anything else!",
    )
    return rng.choice(turns).replace("{t}", text), call


def _copies(text: str, call: dict[str, Json], contract: Contract, rng: random.Random) -> Changed:
    first = re.split(r"(?<=[.!?])\s|\n", str(contract.get("description") or "").strip())[0]
    if len(first.split()) < 7:
        return None
    values = ", ".join(str(v) for v in call.values() if isinstance(v, (str, int, float)))
    return f"{first.rstrip('.')}: {values}" if values else first, call


def _unrealistic(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    words = text.split()
    if len(words) < 6:
        return None
    verb = purpose(contract).verb
    again = " ".join([*words[:3], *words[:3], verb, verb, *words[3:]])
    return again, call


_MUTATIONS: dict[str, Mutation] = {
    "missing_required_argument": _missing_argument,
    "unknown_argument": _unknown_argument,
    "wrong_type": _wrong_type,
    "ungrounded_value": _ungrounded,
    "missing_required_value": _missing_value,
    "names_the_tool": _names_tool,
    "not_an_instruction": _meta_talk,
    "copies_description": _copies,
    "unrealistic": _unrealistic,
}


def _stranger(row: Pair, contracts: Mapping[str, Contract], rng: random.Random) -> str | None:
    """The digest of another tool that would take the same arguments, or None."""
    call = json.loads(row["arguments"])
    others = sorted(d for d in contracts if d != row["contract_digest"])
    rng.shuffle(others)
    for digest in others[:40]:
        if verify(contracts[digest], row["instruction"], call).verdict != "reject":
            return digest
    return None
