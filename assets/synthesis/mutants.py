"""The judge is judged: seeded mutants of good pairs, one flaw each, and how many are caught.

What belongs here: making mutants mechanically, catch rates and false alarms with intervals.
What does not: judging (`judge.py`), the rules (`verify.py`).

Mechanical flaws are the easy ones; a rate over them says that the filters work, not that they
have taste.
"""

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.contracts.validate import validate_call
from assets.synthesis.judge import THRESHOLD, judge_name, opinion
from assets.synthesis.lexicon import words_of
from assets.synthesis.phrasing import said
from assets.synthesis.reading import purpose
from assets.synthesis.verify import verify
from warehouse.effects.llm import LLM

Json = Any
Pair = dict[str, Json]
Contract = Mapping[str, Json]
GOOD = "good"


@dataclass(frozen=True)
class Rate:
    """Of `n` pairs with this flaw (or of the good ones) how many were refused, with a 95% Wilson
    interval."""

    kind: str
    n: int
    refused: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.refused / self.n if self.n else math.nan


@dataclass(frozen=True)
class MutationReport:
    """Catch rate per flaw kind and false alarms on the good pairs they were made from."""

    judge: str
    flaws: list[Rate]
    false_alarms: Rate

    @property
    def caught(self) -> Rate:
        """All flaw kinds together."""
        return _rate("all", sum(r.n for r in self.flaws), sum(r.refused for r in self.flaws))


def mutation_test(
    pair_rows: Sequence[Pair],
    contracts: Mapping[str, Contract],
    llm: LLM,
    *,
    seed: int = 0,
    good: int = 60,
    threshold: float = THRESHOLD,
) -> MutationReport:
    """Judges up to `good` accepted pairs and one mutant of each per flaw kind.

    `contracts` maps contract_digest -> contract. Mutants go the way of every pair: rules first,
    then the judge. Raises what the judge's client raises.
    """
    accepted = [row for row in pair_rows if row["status"] == "ok" and row["verdict"] == "accept"]
    known = [row for row in accepted if row["contract_digest"] in contracts]
    rng = random.Random(seed)
    chosen = rng.sample(sorted(known, key=lambda row: row["pair_id"]), min(good, len(known)))
    cases = [(GOOD, row) for row in chosen]
    for row in chosen:
        contract = contracts[row["contract_digest"]]
        cases += [(m["flaw"], m["pair"]) for m in mutants(row, contract, contracts, rng)]
    refused = asyncio.run(_refusals([row for _, row in cases], contracts, llm, seed, threshold))
    counts: Counter[str] = Counter(kind for kind, _ in cases)
    hits = Counter(kind for (kind, _), no in zip(cases, refused, strict=True) if no)
    rates = [_rate(kind, counts[kind], hits[kind]) for kind in sorted(counts) if kind != GOOD]
    return MutationReport(judge_name(llm), rates, _rate(GOOD, counts[GOOD], hits[GOOD]))


async def _refusals(
    rows: Sequence[Pair],
    contracts: Mapping[str, Contract],
    llm: LLM,
    seed: int,
    threshold: float,
) -> list[bool]:
    async def refused(row: Pair) -> bool:
        contract = contracts[row["contract_digest"]]
        arguments = json.loads(row["arguments"])
        found = verify(contract, row["instruction"], arguments, server=row["server_id"])
        if found.verdict == "reject":
            return True
        return (await opinion(row, contract, llm, seed)).value.score < threshold

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(refused(row)) for row in rows]
    finally:
        await llm.aclose()
    return [task.result() for task in tasks]


def mutants(
    row: Pair, contract: Contract, contracts: Mapping[str, Contract], rng: random.Random
) -> list[dict[str, Json]]:
    """One mutant per flaw kind that this pair allows: [{flaw, pair}]. The pair is left alone."""
    made: list[dict[str, Json]] = []
    for flaw, mutate in _MUTATIONS.items():
        arguments = json.loads(row["arguments"])
        changed = mutate(row["instruction"], arguments, contract, rng)
        if changed is None:
            continue
        text, call = changed
        if (text, call) != (row["instruction"], json.loads(row["arguments"])):
            pair = {**row, "instruction": text, "arguments": json.dumps(call, ensure_ascii=False)}
            made.append({"flaw": flaw, "pair": pair})
    other = _stranger(row, contracts, rng)
    if other is not None:
        made.append({"flaw": "wrong_tool", "pair": {**row, "contract_digest": other}})
    return made


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """95% Wilson interval of a share; (0, 1) when nothing was counted."""
    if n == 0:
        return 0.0, 1.0
    p, half = hits / n, z * z / (2 * n)
    spread = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (p + half - spread) / scale), min(1.0, (p + half + spread) / scale)


def _rate(kind: str, n: int, refused: int) -> Rate:
    return Rate(kind, n, refused, *wilson(refused, n))


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
    spoken = said(call[name], rng, free=False)
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
    values = ", ".join(
        said(v, rng, False) for v in call.values() if isinstance(v, (str, int, float))
    )
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
