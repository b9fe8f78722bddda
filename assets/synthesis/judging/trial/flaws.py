"""Flaws on purpose: one mechanical mutant of a good pair per kind of flaw."""

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import read_purpose
from assets.synthesis.common.tables import Golden, dump_text, read_goldens
from assets.synthesis.verify.verify import verify
from assets.vectors.lexicon import split_identifier

Json = Any
Pair = dict[str, Json]
Contract = Mapping[str, Json]
# All that the corpus of labelled flaws knows; the last three only sense can tell.
FLAWS = (
    "missing_required_argument", "unknown_argument", "wrong_type", "ungrounded_value",
    "missing_required_value", "names_the_tool", "not_an_instruction", "copies_description",
    "unrealistic", "wrong_tool",
)  # fmt: skip


def make_mutants(
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
            made.append({"flaw": flaw, "pair": rewrite_row(row, text, call)})
    other = _find_other_tool(row, contracts, rng)
    if other is not None:
        made.append({"flaw": "wrong_tool", "pair": redirect_call(row, other, contracts[other])})
    return made


def rewrite_row(row: Pair, text: str, arguments: Mapping[str, Json]) -> Pair:
    """The row of one call with another request and other arguments, in every column that says
    them."""
    calls = [vars(one) for one in read_goldens(row)] if row.get("calls") else []
    calls = [{**one, "arguments": dict(arguments)} for one in calls]
    changed = {"instruction": text, "arguments": dump_text(arguments), "calls": dump_text(calls)}
    return {**row, **changed, "messages": _make_conversation(row, text, calls)}


def redirect_call(row: Pair, digest: str, contract: Contract) -> Pair:
    """The row of one call with its call sent to another tool, which is offered beside its own."""
    offered = {row["contract_digest"], digest, *json.loads(row.get("offered") or "[]")}
    call = Golden(row["server_id"], str(contract.get("name")), digest, json.loads(row["arguments"]))
    calls = [vars(call)]
    return {
        **row,
        "tool": call.tool,
        "contract_digest": digest,
        "calls": dump_text(calls),
        "offered": dump_text(sorted(offered)),
        "messages": _make_conversation(row, row["instruction"], calls),
    }


def _make_conversation(row: Pair, text: str, calls: list[dict[str, Json]]) -> str | None:
    """The conversation of one call: the request and the call; what followed is left out, for it
    answered another call."""
    if not row.get("messages"):
        return row.get("messages")
    made = [
        {"id": f"call_{n}", "type": "function", "function": {"name": c["tool"],
         "arguments": dump_text(c["arguments"])}}
        for n, c in enumerate(calls, 1)
    ]  # fmt: skip
    asked = {"role": "user", "content": text}
    return dump_text([asked, {"role": "assistant", "content": None, "tool_calls": made}])


Changed = tuple[str, dict[str, Json]] | None


Mutation = Callable[[str, dict[str, Json], Contract, random.Random], Changed]


def _list_required(arguments: Mapping[str, Json], contract: Contract) -> list[str]:
    return [name for name in contract["inputSchema"].get("required") or [] if name in arguments]


def _drop_argument(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    names = _list_required(call, contract)
    if not names:
        return None
    gone = rng.choice(names)
    return text, {name: value for name, value in call.items() if name != gone}


def _add_argument(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    if contract["inputSchema"].get("additionalProperties") not in (None, False):
        return None
    name = rng.choice(["verbose", "output_format", "apiVersion", "userId", "extra"])
    declared = contract["inputSchema"].get("properties") or {}
    return None if name in declared else (text, {**call, name: rng.choice(["true", "json", 1])})


def _change_type(
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


def _invent_value(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    names = [n for n in _list_required(call, contract) if _is_stated_scalar(call[n], text)]
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


def _drop_value(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    names = [n for n in _list_required(call, contract) if _is_stated_scalar(call[n], text)]
    if not names:
        return None
    name = rng.choice(names)
    spoken = str(call[name])
    vague = rng.choice(["it", "that one", "the usual one", "the one we talked about"])
    return re.sub(rf"['\"]?{re.escape(spoken)}['\"]?", vague, text), call


def _is_stated_scalar(value: Json, text: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
        return False
    spoken = str(value)
    return len(spoken) > 2 and text.count(spoken) == 1


def _name_tool(text: str, call: dict[str, Json], contract: Contract, rng: random.Random) -> Changed:
    name = contract["name"]
    if len(split_identifier(name)) < 2:
        return f"Use the {name} tool: {text}", call
    return rng.choice([f"Use the {name} tool. {text}", f"Call {name}: {text}"]), call


def _add_meta_talk(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    turns = (
        "Sure! Here is a request for that: {t}",
        "The user wants the following: {t} The arguments should be set accordingly.",
        "I'm sorry, but I can't do that without more information.",
        "As an AI language model, I would suggest: {t}",
        "{t} Let me know if you need anything else!",
    )
    return rng.choice(turns).replace("{t}", text), call


def _copy_description(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    first = re.split(r"(?<=[.!?])\s|\n", str(contract.get("description") or "").strip())[0]
    if len(first.split()) < 7:
        return None
    values = ", ".join(str(v) for v in call.values() if isinstance(v, (str, int, float)))
    return f"{first.rstrip('.')}: {values}" if values else first, call


def _make_unrealistic(
    text: str, call: dict[str, Json], contract: Contract, rng: random.Random
) -> Changed:
    words = text.split()
    if len(words) < 6:
        return None
    verb = read_purpose(contract).verb
    again = " ".join([*words[:3], *words[:3], verb, verb, *words[3:]])
    return again, call


_MUTATIONS: dict[str, Mutation] = {
    "missing_required_argument": _drop_argument,
    "unknown_argument": _add_argument,
    "wrong_type": _change_type,
    "ungrounded_value": _invent_value,
    "missing_required_value": _drop_value,
    "names_the_tool": _name_tool,
    "not_an_instruction": _add_meta_talk,
    "copies_description": _copy_description,
    "unrealistic": _make_unrealistic,
}


def _find_other_tool(
    row: Pair, contracts: Mapping[str, Contract], rng: random.Random
) -> str | None:
    """The digest of another tool that would take the same arguments, or None."""
    call = json.loads(row["arguments"])
    others = sorted(d for d in contracts if d != row["contract_digest"])
    rng.shuffle(others)
    for digest in others[:40]:
        if verify(contracts[digest], row["instruction"], call).verdict != "reject":
            return digest
    return None
