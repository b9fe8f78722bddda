"""Putting values and other words into a tool's own phrase ("a specific city" -> Lisbon)."""

import random
import re

from assets.synthesis.offline.language.phrasing import (
    CALLED,
    PROPER,
    SUFFIXES,
    Filled,
    quote_text,
    say_value,
)
from assets.vectors.lexicon import collect_words, load_lexicon

_WOVEN = (
    PROPER
    | {"choice", "number", "date", "time", "datetime", "language_code", "currency", "id", "sha"}
    | {"issue_key", "session", "connection_id", "account", "uuid", "token", "project_key", "color"}
    | {"title", "project", "tag", "table", "database", "sheet", "team", "branch", "repo", "status"}
    | {"sentence", "word", "cell", "range", "arxiv_id", "selector", "element", "column", "thing"}
    | {"role", "owner", "version", "country_code", "phone", "entity_type", "unit", "slug_key"}
)


def weave_values(
    rest: str, filled: list[Filled], rng: random.Random, free: bool
) -> tuple[str, list]:
    """Puts values where the object phrase speaks of them ("a specific city" -> Lisbon).

    Returns the phrase and what could not be placed. Woven values stand behind NUL marks so that
    later rewording leaves them alone; `restore` puts them back.
    """
    left: list[Filled] = []
    for item in filled:
        if item.sort not in _WOVEN or len(str(item.value)) > 60:
            left.append(item)
            continue
        pattern = _match_mention(item)
        spans = [m.span() for m in re.finditer("\0[^\0]*\0", rest)]
        found = pattern.finditer(rest) if pattern else ()
        match = next((m for m in found if not any(a <= m.start() < b for a, b in spans)), None)
        if match is None:
            left.append(item)
            continue
        before = rest[: match.start()].split()
        compound = bool(before) and before[-1].lower() not in _OPENING and "\0" not in before[-1]
        noun = match.group("noun") or match.group("other")
        text = _say_inline(item, noun, rng, free, compound)
        rest = rest[: match.start()] + _mark_value(text) + rest[match.end() :]
    rest = re.sub(r"\b(?:an?|the) ((?:[\w-]+ ){0,2}\0)", r"\1", rest) if "\0" in rest else rest
    if len(left) < len(filled) or any(item.sort in _ID_LIKE or item.label == "ID" for item in left):
        rest = _BY_ID.sub("", rest)
    return re.sub(r"\s+", " ", rest).strip(), left


_BY_ID = re.compile(
    r"\s+(?:by|using) (?:its |their |the )?(?:unique )?(?:ids?|keys?|names?|\w+ ids?)\b",
    re.IGNORECASE,
)


_OPENING = collect_words(
    "a an the of for to in on at by from with into and or about between as under your"
)


_DETERMINED = (
    r"(?:\b(?:a|an|the|this|that|your|any|some|one|its|their)\s+)?"
    r"(?:\b(?:specific|given|specified|provided|particular|certain|existing|single|new|target)\s+)?"
)


def _match_mention(item: Filled) -> re.Pattern[str] | None:
    heads = [w for w in item.slot.words if w not in SUFFIXES and len(w) > 2][-1:]
    if item.sort in ("repo_path", "repo"):
        heads += ["repository"]
    if item.sort == "folder_path" or item.slot.name == "path":
        heads += ["directory", "folder", "path", "file"]
    if item.sort == "city":
        heads += ["location", "place"]
    if not heads:
        return None
    nouns = "|".join(re.escape(head) + ("s?" if item.sort == "topic" else "") for head in heads)
    suffix = r"(?:id|name|key|path|number|identifier)"
    # "from one currency to another": the second of a pair has no noun of its own.
    other = (
        r"|(?<=\bto )(?P<other>another)\b" if set(item.slot.words) & _SECOND else "(?P<other>$^)?"
    )
    return re.compile(
        rf"{_DETERMINED}\b(?P<noun>{nouns})\b(?:\s+{suffix}\b)?(?:\s+or\s+{suffix}\b)*{other}",
        re.IGNORECASE,
    )


_SECOND = {"target", "to", "dest", "destination", "output"}


_ID_LIKE = collect_words("id issue_key session connection_id account uuid token project_key")


def _say_inline(item: Filled, noun: str, rng: random.Random, free: bool, compound: bool) -> str:
    text = say_value(item.value, rng, free)
    sort = item.sort
    if compound:
        # "a Jira issue": the noun belongs to the words before it and stays.
        return f"{noun} {text if sort in PROPER or sort == 'number' else quote_text(text, rng)}"
    if sort in PROPER:
        longer = f"the {noun} {text}" if sort in ("repo_path", "path", "folder_path") else text
        return rng.choice([text, text, longer])
    if sort == "choice":
        return rng.choice([f"{text} {noun}", f"{noun} {text}"])
    if sort in CALLED or sort in ("sentence", "word", "status"):
        return rng.choice(
            [f"the {noun} {quote_text(text, rng)}", f"the {noun} called {quote_text(text, rng)}"]
        )
    if sort in _ID_LIKE:
        return rng.choice([f"{noun} {text}", f"{noun} {text}", f"the {noun} with ID {text}"])
    return text if noun == "another" else f"{noun} {text}"


def _mark_value(text: str) -> str:
    return "\0" + text.replace(" ", "\1") + "\0"


def restore_values(text: str) -> str:
    """Undoes the marks that `weave` put around values."""
    return text.replace("\0", "").replace("\1", " ")


def reword_phrase(phrase: str, rng: random.Random, rate: float) -> str:
    """Swaps the tool's own nouns and adjectives for others, each with probability `rate`."""
    nouns = load_lexicon()["nouns"]
    for size in (2, 1):
        words = phrase.split(" ")
        result: list[str] = []
        position = 0
        while position < len(words):
            key = " ".join(words[position : position + size]).lower().strip(",.")
            options = nouns.get(key)
            own = words[position : position + size]
            # Names stay: "Hacker News" is no headline.
            fixed = any("\0" in word or (position and word[:1].isupper()) for word in own)
            if options and not fixed and (options == [""] or rng.random() < rate):
                result += [rng.choice(options)]
                position += size
                continue
            result.append(words[position])
            position += 1
        phrase = " ".join(word for word in result if word)
    return re.sub(r"\b([Aa])n? (?=([aeiou])?)", _fix_article, phrase)


def shorten_phrase(phrase: str, rng: random.Random, rate: float) -> str:
    """Drops trailing modifiers ("from the file system") and idle adjectives, each with probability
    `rate`: people leave out the obvious. What holds a value stays."""
    while rng.random() < rate:
        joints = [m.start() for m in _JOINT.finditer(phrase)]
        head, tail = (phrase[: joints[-1]], phrase[joints[-1] :]) if joints else ("", "")
        if not joints or "\0" in tail or not re.search(r"\w{3,}", head):
            break
        phrase = head
    words = [w for w in phrase.split(" ") if w.lower() not in _IDLE or rng.random() > rate]
    return " ".join(words) if len(words) > 1 else phrase


_JOINT = re.compile(r",?\s(?:from|as|in|with|for|using|on|based|of|by|to|that|and|including)\s")


_IDLE = collect_words(
    "complete entire full detailed current specific available various comprehensive existing "
    "specified given all multiple recent relevant associated related real-time structured"
)


def _fix_article(match: re.Match[str]) -> str:
    return f"{match.group(1)}n " if match.group(2) else f"{match.group(1)} "
