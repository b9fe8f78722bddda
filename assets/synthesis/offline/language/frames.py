"""The frames of a request: who asks, in what mood, around the words of one tool."""

import random
import re

from assets.synthesis.common.purpose import Purpose
from assets.synthesis.offline.language.clauses import make_clause
from assets.synthesis.offline.language.idioms import find_idiom
from assets.synthesis.offline.language.phrasing import Filled
from assets.synthesis.offline.language.weaving import (
    restore_values,
    reword_phrase,
    shorten_phrase,
    weave_values,
)
from assets.vectors.lexicon import find_topic, load_lexicon
from warehouse.json_types import Contract, JsonObject

_BARE = re.compile(r"(?:I|I'm|let me|let's|what|which|can I|see if|how many)\b", re.IGNORECASE)


def make_sentence(
    contract: Contract,
    aim: Purpose,
    filled: list[Filled],
    style: str,
    rng: random.Random,
    profile: JsonObject | None = None,
    far: bool = False,
) -> str:
    """One request that states the values, in a style and, as far as it goes, a profile's tone;
    `far` from the contract's own words where other words are known."""
    sentence = _state_request(contract, aim, filled, style, rng, far)
    return _set_tone(sentence, profile or {}, style, rng)


def _state_request(
    contract: Contract,
    aim: Purpose,
    filled: list[Filled],
    style: str,
    rng: random.Random,
    far: bool,
) -> str:
    free = style != "direct"
    rate = _IDIOM_RATE["implicit" if far else style]
    idiom = find_idiom(contract, aim, filled, rng) if rng.random() < rate else None
    if idiom is not None:
        request, left = idiom
        clauses = [make_clause(item, rng, free) for item in left]
        return _frame_request(contract, request, clauses, style, rng)
    first, left = weave_values(aim.rest, filled, rng, free)
    plain = {"direct": (0.35, 0.5), "detailed": (0.35, 0.7)}.get(style, (0.6, 0.85))
    shortened, other = (0.7, 0.95) if far else plain
    reworded = restore_values(reword_phrase(shorten_phrase(first, rng, shortened), rng, other))
    clauses = [make_clause(item, rng, free) for item in left]
    # What reads on ("in Lisbon") comes before what needs a pause ("title: …").
    close = [c for c in clauses if _reads_on(c)][:2]
    apart = [c for c in clauses if c not in close]
    phrase = " ".join([reworded, *close]).strip()
    if (style == "implicit" or far) and re.match(r"\w+\s", phrase + " "):
        request = _make_goal(aim, phrase, rng)
    else:
        request = _make_request(aim, phrase, rng)
    return _frame_request(contract, request, apart, style, rng)


# How often a request is a question people really ask ("What does X mean?") instead of the tool's
# own verb and object in other words.
_IDIOM_RATE = {"direct": 0.5, "detailed": 0.5, "implicit": 0.8}


_READS_ON = re.compile(
    r"(?:in|at|from|for|to|with|without|on|about|mentioning|called|named|titled|as|by|until|into"
    r"|up to|since|starting|saying|under|no more than|namely)\b"
)


def _reads_on(text: str) -> bool:
    return bool(_READS_ON.match(text)) and ":" not in re.sub(r"'[^']*'|\S+:\S+", "", text)


def _make_request(aim: Purpose, phrase: str, rng: random.Random) -> str:
    words = load_lexicon()
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
    if re.match(r"(?:if|whether)\b", phrase):
        opener = rng.choice(("check", "find out", "tell me", "see"))
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


def _make_goal(aim: Purpose, phrase: str, rng: random.Random) -> str:
    frames = load_lexicon()["goals"].get(aim.family)
    if (
        not frames
        or aim.verb not in load_lexicon()["core"][aim.family]
        or re.match(r"(?:for|to|on|in|with|by|at|from|into|whether|if|how)\b", phrase)
    ):
        return _make_request(aim, phrase, rng)
    noun = re.sub(r"^(?:all|all of|every one of)\s+(?:the\s+)?", "the ", phrase)
    if aim.family != "create" and re.match(r"(?:an?)\s", noun):
        noun = re.sub(r"^an?\s", "that ", noun) if rng.random() < 0.5 else noun
    elif aim.family != "create" and re.match(r"[a-z]+\b(?<!the)\s", noun) and rng.random() < 0.6:
        noun = noun if noun.startswith(_ARTICLED) else f"the {noun}"
    frame = rng.choice(frames)
    return frame.replace("{o}", noun).replace("{O}", noun[0].upper() + noun[1:])


_ARTICLED = ("the ", "that ", "my ", "multiple ", "several ", "a ", "an ", "every ")


def _frame_request(
    contract: Contract, request: str, apart: list[str], style: str, rng: random.Random
) -> str:
    words = load_lexicon()
    if apart:
        mark = request[-1]
        body = request[:-1]
        joined = "; ".join(apart) if any(":" in text for text in apart) else ", ".join(apart)
        opening = rng.choice([", ", ": ", " - "]) if ":" not in body else ", "
        request = f"{body}{opening}{joined}{mark if mark != '?' or len(joined) < 60 else '.'}"
    topic = find_topic(f"{contract.get('name')} {contract.get('description')}")
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
    text = re.sub(r"\b(for|to|in|of|at|on|with|from) \1\b", r"\1", text)
    text = re.sub(r"\b(detailed|full) (?:details|detailed)\b", "full details", text)
    return re.sub(r"\s+([,.?;:])(?=\s|$)", r"\1", re.sub(r"  +", " ", text))


def _set_tone(text: str, profile: JsonObject, style: str, rng: random.Random) -> str:
    """A word of courtesy, of haste or of who asks, where the profile wants one."""
    tone = str(profile.get("tone") or "").lower()
    persona = str(profile.get("persona") or "").strip().rstrip(".")
    if re.search(r"polite|formal|courteous|friendly|warm", tone) and "please" not in text.lower():
        return f"{text if text[-1:] in '.?!' else text + '.'} {rng.choice(_COURTESIES)}"
    if re.search(r"hurr|urgent|impatient|stress", tone):
        return f"{rng.choice(_HASTE)} {text}"
    plain = re.fullmatch(r"(?:an?|the) [\w ,'-]{3,60}", persona)
    if style == "detailed" and plain and rng.random() < 0.5:
        return f"I'm {persona}. {text[:1].upper()}{text[1:]}"
    return text


_COURTESIES = ("Many thanks in advance.", "I'd be grateful.", "Thank you kindly.", "Please.")
_HASTE = ("Quickly:", "In a hurry here.", "This can't wait.", "No time to lose.")
