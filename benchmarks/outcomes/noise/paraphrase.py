"""Other words for the names and descriptions of tools, by rule and seed."""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from assets.vectors.lexicon import split_identifier

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
