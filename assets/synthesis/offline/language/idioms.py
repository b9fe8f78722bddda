"""Questions people really ask, for the sorts of tools that many servers offer."""

import random

from assets.synthesis.common.purpose import Purpose
from assets.synthesis.offline.language.phrasing import Filled, quote_text, say_value
from assets.vectors.lexicon import load_lexicon, split_identifier
from warehouse.json_types import Contract


def find_idiom(
    contract: Contract, aim: Purpose, filled: list[Filled], rng: random.Random
) -> tuple[str, list[Filled]] | None:
    """A request in an idiom that fits the tool, and the values it does not hold; None without one.

    The most specific idioms (most words matched) are taken; `{v}` and `{w}` take the first values
    that fit into a sentence.
    """
    known = {*split_identifier(aim.rest), *split_identifier(str(contract.get("name")))}
    fitting = [
        idiom
        for idiom in load_lexicon()["idioms"]
        if idiom["family"] in ("", aim.family) and set(idiom["when"]) <= known
    ]
    if not fitting:
        return None
    words = [*split_identifier(aim.rest), *split_identifier(str(contract.get("name")))]
    # The most words matched; among those what the tool speaks of first ("a comment to a page").
    ranks = [(-len(i["when"]), min(words.index(word) for word in i["when"])) for i in fitting]
    idiom = rng.choice([i for i, rank in zip(fitting, ranks, strict=True) if rank == min(ranks)])
    form = rng.choice(idiom["say"])
    sayable = [item for item in filled if _is_sayable(item, idiom["needs"], aim.family)]
    if form.count("{") > len(sayable):
        return None
    held: list[Filled] = []
    for mark in ("{v}", "{w}"):
        if mark in form:
            item = _choose_main(sayable, held, aim.family)
            held.append(item)
            form = form.replace(mark, _say_value(item, rng))
    return form[0].upper() + form[1:], [item for item in filled if item not in held]


_NEEDS = {
    "place": {"city", "country", "address", "airport", "timezone", "number"},
    "path": {"path", "folder_path", "repo_path", "filename", "regex", "image_path", "video_path"},
    "address": {"url", "domain", "path", "image_url", "filename", "video_path", "id"},
    "asset": {"symbol", "coin", "pair", "company", "currency"},
}
# Whole sentences answer "tell them what?", never "what about?".
_SENTENCES = {"sentence", "thought", "prompt", "title"}


def _is_sayable(item: Filled, needs: str, family: str) -> bool:
    if item.sort in ("switch", "parts", "choice") or not 0 < len(str(item.value)) <= 90:
        return False
    if needs:
        return item.sort in _NEEDS[needs]
    return item.sort not in _SENTENCES or family in ("create", "send", "run", "update")


def _choose_main(sayable: list[Filled], held: list[Filled], family: str) -> Filled:
    """What the request is about: a new thing's name, else the first required text, else the first
    value."""
    free = [item for item in sayable if item not in held]
    names = [i for i in free if i.sort in ("title", "project", "person", "sentence")]
    if family == "create" and names:
        return names[0]
    texts = [i for i in free if i.slot.required and isinstance(i.value, str)]
    return (texts or free)[0]


def _say_value(item: Filled, rng: random.Random) -> str:
    text = say_value(item.value, rng, free=False)
    if item.sort in ("id", "account", "uuid", "number") and item.label not in ("a", "b", "x", "y"):
        return f"{item.label} {text}"
    return quote_text(text, rng) if " " in text and item.sort not in ("city", "topic") else text
