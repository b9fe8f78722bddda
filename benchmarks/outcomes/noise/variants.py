"""Variants: copies of real endpoints in other words, most with a fault; and what changes later."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from assets.vectors.lexicon import split_identifier
from benchmarks.outcomes.noise.endpoints import ToolEndpoint, make_opaque_id, rename_arguments
from benchmarks.outcomes.noise.proxy import EMPTY, FAULTS, RANDOM, STALE

SYNONYMS: dict[str, tuple[str, ...]] = {
    "read": ("load", "open", "view"),
    "write": ("save", "store", "put"),
    "create": ("make", "add", "set up"),
    "creates": ("makes", "adds"),
    "reads": ("loads", "opens"),
    "writes": ("saves", "stores"),
    "delete": ("remove", "erase"),
    "deletes": ("removes", "erases"),
    "list": ("enumerate", "show"),
    "lists": ("enumerates", "shows"),
    "get": ("obtain", "return"),
    "gets": ("obtains", "returns"),
    "search": ("look", "hunt"),
    "find": ("locate", "spot"),
    "fetch": ("retrieve", "download"),
    "fetches": ("retrieves", "downloads"),
    "move": ("relocate", "transfer"),
    "moves": ("relocates", "transfers"),
    "copy": ("duplicate", "replicate"),
    "edit": ("modify", "change"),
    "update": ("revise", "change"),
    "show": ("display", "present"),
    "shows": ("displays", "presents"),
    "describe": ("explain", "outline"),
    "execute": ("run", "perform"),
    "file": ("document",),
    "files": ("documents",),
    "directory": ("folder",),
    "directories": ("folders",),
    "website": ("web page", "site"),
    "contents": ("text", "content"),
    "content": ("text", "body"),
    "multiple": ("several", "many"),
    "new": ("fresh", "further"),
    "changes": ("modifications", "edits"),
    "entities": ("items", "nodes"),
    "knowledge": ("memory",),
    "sheet": ("worksheet",),
    "worksheet": ("sheet",),
    "information": ("details", "facts"),
    "detailed": ("full", "thorough"),
    "specific": ("given", "particular"),
    "request": ("query",),
    "table": ("relation",),
    "tree": ("hierarchy",),
    "commit": ("commit",),
}
OPENERS = ("", "", "Use this to: ", "Handy tool. ", "Fast and reliable. ", "In short: ")
RENAMES = ("target", "subject", "value_in", "input_1", "item", "ref")
_SENTENCE = re.compile(r"(?<=[.!?])\s")
_WORD = re.compile(r"[A-Za-z]+")


def paraphrase_name(name: str, rng: Random) -> str:
    """`read_file` -> `load_document`; a prefix of the product goes."""
    words = [item for item in split_identifier(name) if item not in ("fast", "excel")]
    return "_".join(_replace_word(word, rng).replace(" ", "_") for word in words) or name


def paraphrase_text(name: str, description: str, rng: Random) -> str:
    """The first sentence in other words; of a description that has no Latin words, the name's."""
    first = _SENTENCE.split(" ".join(description.split()))[0]
    if len(_WORD.findall(first)) < 2:
        first = " ".join(split_identifier(name)).capitalize()
    said = _WORD.sub(lambda match: _replace_word(match[0], rng), first).rstrip(".")
    return f"{rng.choice(OPENERS)}{said}."


def paraphrase_contract(contract: Mapping[str, Any], name: str, rng: Random) -> dict[str, Any]:
    """The contract under another name, its description in other words and its parameters without
    theirs."""
    schema: dict[str, Any] = dict(contract.get("inputSchema") or {"type": "object"})
    known = schema.get("properties") or {}
    schema["properties"] = {key: _drop_words(one) for key, one in known.items()}
    about = paraphrase_text(str(contract["name"]), str(contract.get("description") or ""), rng)
    return {"name": name, "description": about, "inputSchema": schema}


def _drop_words(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    return {name: one for name, one in schema.items() if name not in ("description", "title")}


def _replace_word(word: str, rng: Random) -> str:
    others = SYNONYMS.get(word.lower())
    if not others:
        return word
    made = rng.choice(others)
    return made.capitalize() if word[:1].isupper() else made


HEALTHY_SHARE = 0.2  # of variants: copies in other words that have no fault
NEWCOMERS = 12
CHANGED_SHARE = 0.2  # of all endpoints; a third of them with their contract


def make_variants(real: Sequence[ToolEndpoint], n: int, seed: int) -> list[ToolEndpoint]:
    """`n` variants of real endpoints, of each about as many, each fault as often as any other."""
    rng = Random(f"variants/{seed}")
    bases = list(_cycle_shuffled(real, n, rng))
    healthy = round(n * HEALTHY_SHARE)
    faults: list[str | None] = [None] * healthy
    faults += [FAULTS[at % len(FAULTS)] for at in range(n - healthy)]
    rng.shuffle(faults)
    return [
        make_variant(base, fault, at, seed)
        for at, (base, fault) in enumerate(zip(bases, faults, strict=True))
    ]


def make_newcomers(real: Sequence[ToolEndpoint], n: int, seed: int) -> list[ToolEndpoint]:
    """Copies without a fault that are listed in the second phase only."""
    bases = Random(f"newcomers/{seed}").sample(list(real), min(n, len(real)))
    made = (make_variant(base, None, f"new-{at}", seed) for at, base in enumerate(bases))
    return [replace(item, newcomer=True) for item in made]


def make_variant(base: ToolEndpoint, fault: str | None, at: int | str, seed: int) -> ToolEndpoint:
    """A copy of a real endpoint behind our proxy: another server, name and description."""
    rng = Random(f"{base.id}/{fault}/{at}/{seed}")
    name = f"{paraphrase_name(base.tool, rng)}"
    contract = paraphrase_contract(base.contracts[0], name, rng)
    server = make_opaque_id("variant", at, seed)
    return ToolEndpoint(
        server, name, base.source, base.base, (contract, contract), (fault, fault), direct=False
    )


def change_endpoints(endpoints: Sequence[ToolEndpoint], seed: int) -> list[ToolEndpoint]:
    """The endpoints of which a share changes in the second phase: what works gets a fault, what has
    one loses it; a third of those get another contract as well."""
    rng = Random(f"changes/{seed}")
    kept = [endpoint for endpoint in endpoints if not endpoint.newcomer]
    chosen = {item.id for item in rng.sample(kept, round(len(kept) * CHANGED_SHARE))}
    return [
        _change_endpoint(endpoint, rng) if endpoint.id in chosen else endpoint
        for endpoint in endpoints
    ]


def _change_endpoint(endpoint: ToolEndpoint, rng: Random) -> ToolEndpoint:
    before = endpoint.faults[0]
    after = None if before else rng.choice((RANDOM, STALE, EMPTY))
    changed = replace(endpoint, faults=(before, after))
    if rng.random() >= 1 / 3:
        return changed
    known = list((endpoint.contracts[0].get("inputSchema") or {}).get("properties") or {})
    names = [item for item in RENAMES if item not in known]
    renames = dict(zip(known[:1], rng.sample(names, 1), strict=False))
    words = str(endpoint.contracts[0].get("description") or "")
    return rename_arguments(changed, renames, paraphrase_text(endpoint.base, words, rng))


def _cycle_shuffled(real: Sequence[ToolEndpoint], n: int, rng: Random) -> Iterator[ToolEndpoint]:
    left: list[ToolEndpoint] = []
    for _ in range(n):
        if not left:
            left = rng.sample(list(real), len(real))
        yield left.pop()
