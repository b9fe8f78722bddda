"""The offline provider: requests, calls and verdicts without any model, from grammar and schema.

What belongs here: the frames of a request and the answers to each role, under the same interface
as an endpoint. Every row it makes says `offline`; nothing here pretends to be a model.
What does not: reading contracts, drawing values, saying them (the modules beside this one).
"""

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from assets.synthesis.edition import offline_edition
from assets.synthesis.idioms import idiom_for
from assets.synthesis.lexicon import lexicon, topic_of
from assets.synthesis.phrasing import Filled, clause
from assets.synthesis.reading import Purpose, Slot, purpose, slots
from assets.synthesis.values import draw_new
from assets.synthesis.weaving import restore, reword, shorten, weave
from warehouse.digest import digest
from warehouse.effects.llm import Completion, Request

Json = Any
STYLES = ("direct", "detailed", "implicit")
_BARE = re.compile(r"(?:I|I'm|let me|let's|what|which|can I|see if|how many)\b", re.IGNORECASE)


class Offline:
    """Answers the roles `generator`, `caller` and, when injected, `judge` from `Request.meta`.

    meta of the generator: contract, count. Of the caller: values. Other roles come in `answers`.
    """

    def __init__(
        self, answers: Mapping[str, Callable[[Mapping[str, Json], int], Json]] | None = None
    ) -> None:
        self._answers = {"generator": generate, "caller": call, **(answers or {})}

    def version(self) -> str:
        return f"offline-{offline_edition()}"

    async def answer(self, request: Request) -> Completion:
        reply = self._answers[request.role.name](request.meta, request.seed)
        text = json.dumps(reply, ensure_ascii=False)
        return Completion(text=text, finish="stop", model=self.version())


def generate(meta: Mapping[str, Json], seed: int) -> Json:
    """The generator's reply: `count` requests in turn direct, detailed, implicit."""
    contract = meta["contract"]
    made: list[Json] = []
    root = digest([contract, seed])
    for index in range(int(meta["count"])):
        style = STYLES[index % len(STYLES)]
        rng = random.Random(f"{root}:{index}")
        made.append({"kind": style, **request_for(contract, style, rng)})
    return {"requests": made}


def call(meta: Mapping[str, Json], seed: int) -> Json:
    """The caller's reply: the values that the request was written around."""
    return {"arguments": meta["values"]}


def request_for(contract: Mapping[str, Json], style: str, rng: random.Random) -> dict[str, Json]:
    """One request in words, and the arguments it states: {instruction, values}."""
    root = contract.get("inputSchema") or {}
    chosen = _chosen(slots(contract), style, rng)
    filled: list[Filled] = []
    for slot in chosen:
        filled.append(Filled(slot, draw_new(slot, root, rng, [item.value for item in filled])))
    text = _sentence(contract, purpose(contract), filled, style, rng)
    return {"instruction": text, "values": {item.slot.name: item.value for item in filled}}


_MOST = 60  # required parameters said in one request; the longest real contract has 23


def _chosen(all_slots: list[Slot], style: str, rng: random.Random) -> list[Slot]:
    required = [slot for slot in all_slots if slot.required][:_MOST]
    # An option worth saying is a plain one: nobody says a pagination cursor or a callback.
    plain = [
        slot for slot in all_slots
        if not slot.required and slot.type in ("string", "integer", "number", "boolean", "array")
        and not {"cursor", "token", "callback", "timeout", "headers"} & set(slot.words)
    ]  # fmt: skip
    most = {"direct": 1 if len(required) < 2 else 0, "detailed": 2, "implicit": 0}[style]
    if style == "implicit" and not required and rng.random() < 0.4:
        most = 1
    wanted = min(len(plain), rng.randint(min(most, 1 if not required else 0), most) if most else 0)
    # Authors list what matters first; so do people.
    weights = [1 / (position + 1) for position in range(len(plain))]
    picked: list[Slot] = []
    while len(picked) < wanted:
        slot = rng.choices(plain, weights)[0]
        if slot not in picked:
            picked.append(slot)
    return [*required, *picked]


def _sentence(
    contract: Mapping[str, Json], aim: Purpose, filled: list[Filled], style: str, rng: random.Random
) -> str:
    free = style != "direct"
    idiom = idiom_for(contract, aim, filled, rng) if rng.random() < _IDIOM_RATE[style] else None
    if idiom is not None:
        request, left = idiom
        return _framed(contract, request, [clause(item, rng, free) for item in left], style, rng)
    first, left = weave(aim.rest, filled, rng, free)
    first = shorten(first, rng, {"direct": 0.35, "detailed": 0.35}.get(style, 0.6))
    reworded = restore(reword(first, rng, {"direct": 0.5, "detailed": 0.7}.get(style, 0.85)))
    clauses = [clause(item, rng, free) for item in left]
    # What reads on ("in Lisbon") comes before what needs a pause ("title: …").
    close = [c for c in clauses if _reads_on(c)][:2]
    apart = [c for c in clauses if c not in close]
    phrase = " ".join([reworded, *close]).strip()
    if style == "implicit" and re.match(r"\w+\s", phrase + " "):
        request = _goal(aim, phrase, rng)
    else:
        request = _ask(aim, phrase, rng)
    return _framed(contract, request, apart, style, rng)


# How often a request is a question people really ask ("What does X mean?") instead of the tool's
# own verb and object in other words.
_IDIOM_RATE = {"direct": 0.5, "detailed": 0.5, "implicit": 0.8}


_READS_ON = re.compile(
    r"(?:in|at|from|for|to|with|without|on|about|mentioning|called|named|titled|as|by|until|into"
    r"|up to|since|starting|saying|under|no more than|namely)\b"
)


def _reads_on(text: str) -> bool:
    return bool(_READS_ON.match(text)) and ":" not in re.sub(r"'[^']*'|\S+:\S+", "", text)


def _ask(aim: Purpose, phrase: str, rng: random.Random) -> str:
    words = lexicon()
    core = aim.verb in words["core"].get(aim.family, [])
    if (
        core
        and rng.random() < 0.35
        and not re.match(r"(?:for|to|on|in|with|by|at|from|into)\b", phrase)
    ):
        opener = rng.choice(words["openers"].get(aim.family, ["handle"]))
    else:
        options = [v for v in words["verbs"].get(aim.verb, []) if not v.endswith(":")]
        opener = rng.choice(options) if options and rng.random() < 0.75 else aim.verb
    # "look for for events": a verb that brings its preposition takes the phrase's away.
    if opener.split()[-1] in ("for", "at", "on", "in", "to", "into", "of", "about"):
        phrase = re.sub(r"^(?:for|to|on|in|at|about|into)\s+", "", phrase)
    act = f"{opener} {phrase}".strip()
    if _BARE.match(opener):
        mark = "?" if re.match(r"(?:what|which|can|how)", opener) else "."
        return act[0].upper() + act[1:] + mark
    # "I want to show me" is nobody's English; what is for me is asked of you.
    for_me = re.search(r"\b(?:me|us|let's)\b", opener)
    manner = rng.choices(list(words["asks"]), [5, 4, 0 if for_me else 3])[0]
    framed = rng.choice(words["asks"][manner]).replace("{r}", act)
    return framed[0].upper() + framed[1:]


def _goal(aim: Purpose, phrase: str, rng: random.Random) -> str:
    frames = lexicon()["goals"].get(aim.family)
    if (
        not frames
        or aim.verb not in lexicon()["core"][aim.family]
        or re.match(r"(?:for|to|on|in|with|by|at|from|into|whether|if|how)\b", phrase)
    ):
        return _ask(aim, phrase, rng)
    noun = re.sub(r"^(?:all|all of|every one of)\s+(?:the\s+)?", "the ", phrase)
    if aim.family != "create" and re.match(r"(?:an?)\s", noun):
        noun = re.sub(r"^an?\s", "that ", noun) if rng.random() < 0.5 else noun
    elif aim.family != "create" and re.match(r"[a-z]+\b(?<!the)\s", noun) and rng.random() < 0.6:
        noun = noun if noun.startswith(_ARTICLED) else f"the {noun}"
    frame = rng.choice(frames)
    return frame.replace("{o}", noun).replace("{O}", noun[0].upper() + noun[1:])


_ARTICLED = ("the ", "that ", "my ", "multiple ", "several ", "a ", "an ", "every ")


def _framed(
    contract: Mapping[str, Json], request: str, apart: list[str], style: str, rng: random.Random
) -> str:
    words = lexicon()
    if apart:
        mark = request[-1]
        body = request[:-1]
        joined = "; ".join(apart) if any(":" in text for text in apart) else ", ".join(apart)
        opening = rng.choice([", ", ": ", " - "]) if ":" not in body else ", "
        request = f"{body}{opening}{joined}{mark if mark != '?' or len(joined) < 60 else '.'}"
    topic = topic_of(f"{contract.get('name')} {contract.get('description')}")
    contexts = words["contexts"]["general"] + 3 * words["contexts"].get(topic, [])
    parts = [request]
    if style == "detailed" or (style == "implicit" and rng.random() < 0.45):
        parts.insert(0, rng.choice(contexts))
        if rng.random() < 0.15:
            parts.reverse()
    if rng.random() < {"direct": 0.12, "detailed": 0.2, "implicit": 0.1}[style]:
        parts.append(rng.choice(words["closers"]))
    text = " ".join(parts)
    if style == "direct" and rng.random() < 0.15:
        text = text[0].lower() + text[1:].rstrip(".")
    return re.sub(r"\s+([,.?;:])(?=\s|$)", r"\1", re.sub(r"  +", " ", text))
