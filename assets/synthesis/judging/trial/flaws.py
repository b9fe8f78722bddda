"""Flaws on purpose: one mechanical mutant of a good pair per kind of flaw."""

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import get_required
from assets.synthesis.common.messages import make_call_message, make_user_message
from assets.synthesis.common.purpose import read_purpose
from assets.synthesis.common.tables import Golden, dump_text, read_goldens
from assets.synthesis.common.wrong_calls import make_wrong_call
from assets.synthesis.verify.verify import find_call_flaws, verify
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import sha256

Pair = dict[str, Json]


@dataclass(frozen=True)
class Source:
    """The good row of one call that a mutant is made of, and where its chances come from."""

    text: str
    call: dict[str, Json]
    contract: Contract
    rng: random.Random

    def list_stated(self) -> list[str]:
        """The required arguments whose value stands once in the text."""
        required = get_required(self.contract)
        return [
            n for n in required if n in self.call and _is_stated_scalar(self.call[n], self.text)
        ]


def make_mutants(
    row: Pair, contract: Contract, contracts: Mapping[str, Contract], rng: random.Random
) -> list[dict[str, Json]]:
    """One mutant per flaw kind that this row of one call allows: [{flaw, pair}]. The row is left
    alone."""
    good = Source(row["instruction"], json.loads(row["arguments"]), contract, rng)
    made: list[dict[str, Json]] = []
    for flaw, mutate in _MUTATIONS.items():
        changed = mutate(good)
        if changed is not None and changed != (good.text, good.call):
            made.append({"flaw": flaw, "pair": rewrite_row(row, *changed)})
    other = _find_other_tool(row, contracts, rng)
    if other is not None:
        made.append({"flaw": "wrong_tool", "pair": redirect_call(row, other, contracts[other])})
    return made


def rewrite_row(row: Pair, text: str, arguments: JsonObject) -> Pair:
    """The row of one call with another request and other arguments, in every column that says
    them."""
    calls = [vars(golden) for golden in read_goldens(row)] if row.get("calls") else []
    calls = [{**call, "arguments": dict(arguments)} for call in calls]
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
    made = make_call_message(1, [(call["tool"], call["arguments"]) for call in calls])
    return dump_text([make_user_message(text), made])


Changed = tuple[str, dict[str, Json]] | None


def _break_call(kind: str, good: Source) -> Changed:
    wrong = make_wrong_call(good.contract, good.call, good.rng, (kind,))
    return None if wrong is None else (good.text, wrong.arguments)


def _invent_value(good: Source) -> Changed:
    names = good.list_stated()
    if not names:
        return None
    name = good.rng.choice(names)
    value = good.call[name]
    if isinstance(value, (int, float)):
        others = [value * 3 + 17]
    else:  # a shifted value is of the same shape, for patterns and lengths
        others = [good.rng.choice(_OTHER), value.translate(_SHIFT)]
    changed = ({**good.call, name: other} for other in others)
    valid = next((call for call in changed if not validate_call(good.contract, call)), None)
    return None if valid is None else (good.text, valid)


_SHIFT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM3456789012",
)
_OTHER = ("quillfeather", "zanzibar-0417", "mossgrove", "/opt/umber/kelp.dat")


def _drop_value(good: Source) -> Changed:
    names = good.list_stated()
    if not names:
        return None
    spoken = str(good.call[good.rng.choice(names)])
    vague = good.rng.choice(["it", "that one", "the usual one", "the one we talked about"])
    return re.sub(rf"['\"]?{re.escape(spoken)}['\"]?", vague, good.text), good.call


def _is_stated_scalar(value: Json, text: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return False
    return len(str(value)) > 2 and text.count(str(value)) == 1


def _name_tool(good: Source) -> Changed:
    name = good.contract["name"]
    if len(split_identifier(name)) < 2:
        return f"Use the {name} tool: {good.text}", good.call
    forms = [f"Use the {name} tool. {good.text}", f"Call {name}: {good.text}"]
    return good.rng.choice(forms), good.call


def _add_meta_talk(good: Source) -> Changed:
    turns = (
        "Sure! Here is a request for that: {t}",
        "The user wants the following: {t} The arguments should be set accordingly.",
        "I'm sorry, but I can't do that without more information.",
        "As an AI language model, I would suggest: {t}",
        "{t} Let me know if you need anything else!",
    )
    return good.rng.choice(turns).replace("{t}", good.text), good.call


def _copy_description(good: Source) -> Changed:
    described = str(good.contract.get("description") or "").strip()
    first = re.split(r"(?<=[.!?])\s|\n", described)[0]
    if len(first.split()) < 7:
        return None
    values = ", ".join(str(v) for v in good.call.values() if isinstance(v, (str, int, float)))
    return f"{first.rstrip('.')}: {values}" if values else first, good.call


def _repeat_words(good: Source) -> Changed:
    words = good.text.split()
    if len(words) < 6:
        return None
    verb = read_purpose(good.contract).verb
    return " ".join([*words[:3], *words[:3], verb, verb, *words[3:]]), good.call


_MUTATIONS: dict[str, Callable[[Source], Changed]] = {
    "missing_required_argument": partial(_break_call, "missing_required"),
    "unknown_argument": partial(_break_call, "unknown_argument"),
    "wrong_type": partial(_break_call, "wrong_type"),
    "ungrounded_value": _invent_value,
    "missing_required_value": _drop_value,
    "names_the_tool": _name_tool,
    "not_an_instruction": _add_meta_talk,
    "copies_description": _copy_description,
    "unrealistic": _repeat_words,
}
# All that the corpus of labelled flaws knows; the last three only sense can tell.
FLAWS = (*_MUTATIONS, "wrong_tool")


def _find_other_tool(
    row: Pair, contracts: Mapping[str, Contract], rng: random.Random
) -> str | None:
    """The digest of another tool that would take the same arguments, or None. One tool more or less
    leaves the order of the others as it is."""
    call, token = json.loads(row["arguments"]), rng.random()
    others = [contract for contract in contracts if contract != row["contract_digest"]]
    others.sort(key=lambda one: sha256(f"{token}:{one}".encode()))
    for digest in others[:40]:
        # Its schema refuses nearly all: the other rules are asked of the rest alone.
        if any(find_call_flaws(contracts[digest], call)):
            continue
        if verify(contracts[digest], row["instruction"], call).verdict != "reject":
            return digest
    return None
