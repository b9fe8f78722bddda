"""Puts values into a tool's own phrase ("a specific city" -> Lisbon) and frames it as a request."""

import random
import re

from assets.synthesis.contract_reading import ToolPurpose
from assets.synthesis.offline.wording import (
    CALLED,
    ID_LIKE,
    PROPER,
    SUFFIXES,
    FilledSlot,
    find_idiom,
    make_clause,
    quote_text,
    say_value,
)
from assets.vectors.lexicon import collect_words, find_topic, load_lexicon
from warehouse.json_types import Contract, JsonObject
from warehouse.storage.files import read_data

_WORDS = read_data(__file__, "words.toml")
_WOVEN = PROPER | CALLED | ID_LIKE | collect_words(_WORDS["woven"])
_BY_ID = re.compile(
    r"\s{1,9}(?:by|using) (?:its |their |the )?(?:unique )?(?:ids?|keys?|names?|\w{1,40} ids?)\b",
    re.IGNORECASE,
)
_OPENING = collect_words(
    "a an the of for to in on at by from with into and or about between as under your"
)


def weave_values(
    phrase: str, filled: list[FilledSlot], rng: random.Random, free: bool
) -> tuple[str, list[FilledSlot]]:
    """(phrase, values not placed): values where the phrase speaks of them ("a specific city" ->
    Lisbon), behind NUL marks that `_restore_values` removes."""
    left: list[FilledSlot] = []
    for item in filled:
        pattern = _match_mention(item)
        marked = [m.span() for m in re.finditer("\0[^\0]{0,400}\0", phrase)]
        mentions = pattern.finditer(phrase) if pattern else ()
        match = next((m for m in mentions if not any(a <= m.start() < b for a, b in marked)), None)
        if match is None:
            left.append(item)
            continue
        before = phrase[: match.start()].split()
        compound = bool(before) and before[-1].lower() not in _OPENING and "\0" not in before[-1]
        text = _say_inline(item, match.group("noun") or "another", rng, free, compound)
        mark = "\0" + text.replace(" ", "\1") + "\0"
        phrase = phrase[: match.start()] + mark + phrase[match.end() :]
    if "\0" in phrase:
        phrase = re.sub(r"\b(?:an?|the) ((?:[\w-]{1,30} ){0,2}\0)", r"\1", phrase)
    if len(left) < len(filled) or any(item.sort in ID_LIKE or item.label == "ID" for item in left):
        phrase = _BY_ID.sub("", phrase)
    return re.sub(r"\s+", " ", phrase).strip(), left


_DETERMINED = (
    r"(?:\b(?:a|an|the|this|that|your|any|some|one|its|their)\s+)?"
    r"(?:\b(?:specific|given|specified|provided|particular|certain|existing|single|new|target)\s+)?"
)
_SECOND = {"target", "to", "dest", "destination", "output"}


def _match_mention(item: FilledSlot) -> re.Pattern[str] | None:
    if item.sort not in _WOVEN or len(str(item.value)) > 60:
        return None
    heads = [w for w in item.slot.words if w not in SUFFIXES and len(w) > 2][-1:]
    heads += _WORDS["also_called"].get(item.sort, ())
    if not heads:
        return None
    nouns = "|".join(re.escape(head) + ("s?" if item.sort == "topic" else "") for head in heads)
    suffix = r"(?:id|name|key|path|number|identifier)"
    # "from one currency to another": the second of a pair has no noun of its own.
    other = r"|(?<=\bto )another\b" if set(item.slot.words) & _SECOND else ""
    return re.compile(
        rf"{_DETERMINED}\b(?P<noun>{nouns})\b(?:\s+{suffix}\b)?(?:\s+or\s+{suffix}\b)*{other}",
        re.IGNORECASE,
    )


def _say_inline(item: FilledSlot, noun: str, rng: random.Random, free: bool, compound: bool) -> str:
    text, sort = say_value(item.value, rng, free), item.sort
    if compound:
        # "a Jira issue": the noun belongs to the words before it and stays.
        return f"{noun} {text if sort in PROPER or sort == 'number' else quote_text(text, rng)}"
    if sort in PROPER:
        longer = f"the {noun} {text}" if sort in ("repo_path", "path", "folder_path") else text
        return rng.choice([text, text, longer])
    if sort == "choice":
        return rng.choice([f"{text} {noun}", f"{noun} {text}"])
    if sort in CALLED or sort in ("sentence", "word", "status"):
        quoted = quote_text(text, rng)
        return rng.choice([f"the {noun} {quoted}", f"the {noun} called {quoted}"])
    if sort in ID_LIKE:
        return rng.choice([f"{noun} {text}", f"{noun} {text}", f"the {noun} with ID {text}"])
    return text if noun == "another" else f"{noun} {text}"


def _restore_values(text: str) -> str:
    return text.replace("\0", "").replace("\1", " ")


def reword_phrase(phrase: str, rng: random.Random, rate: float) -> str:
    """Swaps the tool's own nouns and adjectives for others, each with probability `rate`."""
    nouns = load_lexicon()["nouns"]
    for size in (2, 1):
        words = phrase.split(" ")
        reworded: list[str] = []
        position = 0
        while position < len(words):
            window = words[position : position + size]
            options = nouns.get(" ".join(window).lower().strip(",."))
            # Names stay: "Hacker News" is no headline.
            fixed = any("\0" in word or (position and word[:1].isupper()) for word in window)
            if options and not fixed and (options == [""] or rng.random() < rate):
                reworded.append(rng.choice(options))
                position += size
            else:
                reworded.append(words[position])
                position += 1
        phrase = " ".join(filter(None, reworded))
    phrase = re.sub(r"\b([Aa])n (?![aeiou])", r"\1 ", phrase)
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", phrase)


_JOINT = re.compile(r",?\s(?:from|as|in|with|for|using|on|based|of|by|to|that|and|including)\s")
_IDLE = collect_words(
    "complete entire full detailed current specific available various comprehensive existing "
    "specified given all multiple recent relevant associated related real-time structured"
)


def shorten_phrase(phrase: str, rng: random.Random, rate: float) -> str:
    """Drops trailing modifiers and idle adjectives, each with probability `rate`; values stay."""
    while rng.random() < rate:
        joints = [m.start() for m in _JOINT.finditer(phrase)]
        if not joints or "\0" in phrase[joints[-1] :]:
            break
        if not re.search(r"\w{3,}", phrase[: joints[-1]]):
            break
        phrase = phrase[: joints[-1]]
    words = [w for w in phrase.split(" ") if w.lower() not in _IDLE or rng.random() > rate]
    return " ".join(words) if len(words) > 1 else phrase


# How often a request is a question people really ask ("What does X mean?") instead of the tool's
# own verb and object in other words; how often that phrase is shortened, and its nouns reworded.
_RATES = {
    "direct": (0.5, 0.35, 0.5),
    "detailed": (0.5, 0.35, 0.7),
    "implicit": (0.8, 0.6, 0.85),
    "far": (0.8, 0.7, 0.95),
}
_READS_ON = re.compile(
    r"(?:in|at|from|for|to|with|without|on|about|mentioning|called|named|titled|as|by|until|into"
    r"|up to|since|starting|saying|under|no more than|namely)\b"
)


def make_sentence(
    contract: Contract,
    aim: ToolPurpose,
    filled: list[FilledSlot],
    style: str,
    rng: random.Random,
    profile: JsonObject | None = None,
    far: bool = False,
) -> str:
    """One request that states the values, in a style and tone; `far` from the contract's words."""
    free = style != "direct"
    as_idiom, shortened, reworded = _RATES["far" if far else style]
    idiom = find_idiom(contract, aim, filled, rng) if rng.random() < as_idiom else None
    if idiom is not None:
        request, left = idiom
        apart = [make_clause(item, rng, free) for item in left]
    else:
        phrase, left = weave_values(aim.rest, filled, rng, free)
        phrase = reword_phrase(shorten_phrase(phrase, rng, shortened), rng, reworded)
        clauses = [make_clause(item, rng, free) for item in left]
        # What reads on ("in Lisbon") comes before what needs a pause ("title: …").
        close = [clause for clause in clauses if _reads_on(clause)][:2]
        apart = [clause for clause in clauses if clause not in close]
        phrase = " ".join([_restore_values(phrase), *close]).strip()
        is_goal = (style == "implicit" or far) and re.match(r"\w+\s", phrase + " ")
        request = (_make_goal if is_goal else _make_request)(aim, phrase, rng)
    sentence = _frame_request(contract, request, apart, style, rng)
    return _set_tone(sentence, profile or {}, style, rng)


def _reads_on(text: str) -> bool:
    words = re.sub(r"'[^']{0,400}'", "", text).split()
    marked = any(":" in word and ":" not in word[1:-1] for word in words)
    return bool(_READS_ON.match(text)) and not marked


_BARE = re.compile(r"(?:I|I'm|let me|let's|what|which|can I|see if|how many)\b", re.IGNORECASE)
_PREPOSITION = re.compile(r"(?:for|to|on|in|with|by|at|from|into)\b")


def _make_request(aim: ToolPurpose, phrase: str, rng: random.Random) -> str:
    words = load_lexicon()
    core = aim.verb in words["core"].get(aim.family, [])
    if core and rng.random() < 0.35 and not _PREPOSITION.match(phrase):
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


_ARTICLED = ("the ", "that ", "my ", "multiple ", "several ", "a ", "an ", "every ")


def _make_goal(aim: ToolPurpose, phrase: str, rng: random.Random) -> str:
    words = load_lexicon()
    frames = words["goals"].get(aim.family)
    opens_badly = _PREPOSITION.match(phrase) or re.match(r"(?:whether|if|how)\b", phrase)
    if not frames or opens_badly or aim.verb not in words["core"][aim.family]:
        return _make_request(aim, phrase, rng)
    noun = re.sub(r"^(?:all|all of|every one of)\s+(?:the\s+)?", "the ", phrase)
    if aim.family != "create" and re.match(r"an?\s", noun):
        noun = re.sub(r"^an?\s", "that ", noun) if rng.random() < 0.5 else noun
    elif aim.family != "create" and re.match(r"[a-z]+\s", noun) and rng.random() < 0.6:
        noun = noun if noun.startswith(_ARTICLED) else f"the {noun}"
    frame = rng.choice(frames)
    return frame.replace("{o}", noun).replace("{O}", noun[0].upper() + noun[1:])


def _frame_request(
    contract: Contract, request: str, apart: list[str], style: str, rng: random.Random
) -> str:
    words = load_lexicon()
    if apart:
        body, mark = request[:-1], request[-1]
        joined = "; ".join(apart) if any(":" in text for text in apart) else ", ".join(apart)
        opening = rng.choice([", ", ": ", " - "]) if ":" not in body else ", "
        request = f"{body}{opening}{joined}{mark if mark != '?' or len(joined) < 60 else '.'}"
    topic = find_topic(f"{contract.get('name')} {contract.get('description')}")
    contexts = words["contexts"]["general"] + 3 * words["contexts"].get(topic, [])
    sentences = [request]
    if style == "detailed" or (style == "implicit" and rng.random() < 0.45):
        sentences.insert(0, rng.choice(contexts))
        if rng.random() < 0.15:
            sentences.reverse()
    if rng.random() < {"direct": 0.12, "detailed": 0.2, "implicit": 0.1}[style]:
        sentences.append(rng.choice(words["closers"]))
    text = " ".join(sentences)
    if style == "direct" and rng.random() < 0.15:
        text = text[0].lower() + text[1:].rstrip(".")
    text = _DOUBLED.sub(lambda match: match[0].partition(" ")[0], text)
    text = re.sub(r"\b(detailed|full) (?:details|detailed)\b", "full details", text)
    return re.sub(r"\s{1,9}([,.?;:])(?=\s|$)", r"\1", re.sub(r"  +", " ", text))


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


_DOUBLED = re.compile(
    r"\bfor for\b|\bto to\b|\bin in\b|\bof of\b|\bat at\b|\bon on\b|\bwith with\b|\bfrom from\b"
)
_COURTESIES = ("Many thanks in advance.", "I'd be grateful.", "Thank you kindly.", "Please.")
_HASTE = ("Quickly:", "In a hurry here.", "This can't wait.", "No time to lose.")
