"""Whether a parameter that is gone is the one that came under another name.

A wrong pairing teaches a model a wrong call and no rule would notice, so only plain evidence
counts: the same words in the name (`userId`, `user_id`), one name short for the other, or the very
same description. Opposites (`start`, `end`) and other units (`seconds`, `ms`) never pair.
"""

import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

from assets.contracts.canonical import tool_text
from assets.contracts.schema.shapes import kinds_of
from assets.vectors.lexicon import words_in

Schema = Mapping[str, Any]

ALIKE = 0.75  # below it two parameters are two parameters
_OPPOSED_WORDS = """
min max minimum maximum start end begin from to before after since until source target src dst
destination first last old new exclude include not no without previous next left right top bottom
up down lower upper in out read write on off sender recipient parent child true false enable
disable enabled disabled"""
_UNIT_WORDS = """
ns us ms s sec secs second seconds millisecond milliseconds microseconds nanoseconds min mins
minute minutes hour hours day days week weeks month months year years byte bytes kb mb gb kib mib
bit bits km kilometer kilometers kilometre kilometres mile miles meter meters metre metres cm mm
foot feet inch inches kg gram grams pound pounds celsius fahrenheit kelvin percent percentage
fraction ratio cent cents usd eur dollar dollars euro euros wei gwei ether satoshi degree degrees
radian radians px pixel pixels token tokens character characters line lines word words page pages"""
_CONTAINER_WORDS = """
params param parameters options option opts input inputs filter filters args arguments data body
query request payload config configuration settings attributes fields properties props spec
criteria"""
_OPPOSED = frozenset(words_in(_OPPOSED_WORDS))
_UNITS = frozenset(words_in(_UNIT_WORDS))
_CONTAINERS = frozenset(words_in(_CONTAINER_WORDS))
_FILLER = frozenset(words_in("the a an of to for in on and or is are this that it be by with"))


def likeness(old_name: str, old: Schema, new_name: str, new: Schema) -> float:
    """0..1: how sure it is that both are one parameter; 0 where anything speaks against it."""
    if not _types_fit(old, new) or opposed(old_name, old, new_name, new):
        return 0.0
    said = _texts_alike(text_of(old), text_of(new))
    if said is not None and said < 0.4:
        return 0.0
    named = _names_alike(words(old_name), words(new_name), said)
    same = said == 1.0 and len(_content(text_of(old))) >= 2
    return max(named, 0.9 if same else 0.0)


def opposed(old_name: str, old: Schema, new_name: str, new: Schema) -> bool:
    """Whether the words in which two parameters differ change what a value means."""
    before = {*words(old_name), *_content(text_of(old))}
    after = {*words(new_name), *_content(text_of(new))}
    names = set(words(old_name)) ^ set(words(new_name))
    if names & (_OPPOSED | _UNITS):
        return True
    ours, theirs = before & _UNITS, after & _UNITS
    if ours and theirs and ours != theirs and not (ours <= theirs or theirs <= ours):
        return True
    said, heard = before & _OPPOSED, after & _OPPOSED
    return old_name != new_name and bool(said ^ heard)


def container_alike(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Whether moving between two places says nothing new: one only wraps, or both are one name."""
    if len(old) == len(new):
        return all(
            _names_alike(words(a), words(b), None) >= 0.9 for a, b in zip(old, new, strict=True)
        )
    longer, shorter = (old, new) if len(old) > len(new) else (new, old)
    return any(
        all(
            set(words(name)) & _CONTAINERS
            for name in longer[cut : cut + len(longer) - len(shorter)]
        )
        for cut in range(len(shorter) + 1)
        if longer[:cut] + longer[cut + len(longer) - len(shorter) :] == shorter
    )


def words(name: str) -> list[str]:
    """The words of a parameter's name, in lower case."""
    return tool_text({"name": name}, "name").split()


def text_of(schema: Schema) -> str:
    """A parameter's own description."""
    return str(schema.get("description") or "")


def _types_fit(old: Schema, new: Schema) -> bool:
    took, takes = kinds_of(old) - {"null"}, kinds_of(new) - {"null"}
    if took == takes or (took < takes and "type" in old):
        return True
    return takes == {"array"} and "array" not in took


def _names_alike(ours: list[str], theirs: list[str], said: float | None) -> float:
    if not ours or not theirs:
        return 0.0
    if "".join(ours) == "".join(theirs):
        return 1.0
    if [_singular(word) for word in ours] == [_singular(word) for word in theirs]:
        return 0.95
    if len(ours) == len(theirs) and all(map(_short_for, ours, theirs)):
        return 0.8
    subset = set(ours) < set(theirs) or set(theirs) < set(ours)
    # `id` for `user_id` may be so and `id` for `parent_id` not: the description has to say it.
    return 0.8 if subset and said is not None and said >= 0.6 else 0.0


def _short_for(a: str, b: str) -> bool:
    short, long = sorted((a, b), key=len)
    return long.startswith(short) and (len(short) >= 3 or len(short) == 1 or short == long)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _texts_alike(a: str, b: str) -> float | None:
    """How alike two descriptions are by their words; None where one says nothing."""
    ours, theirs = _plain(a), _plain(b)
    if not ours or not theirs:
        return None
    if ours == theirs:
        return 1.0
    return min(0.99, SequenceMatcher(None, ours, theirs, autojunk=False).ratio())


def _plain(text: str) -> list[str]:
    return re.findall(r"\w+", text[:600].casefold())


def _content(text: str) -> list[str]:
    return [word for word in _plain(text) if word not in _FILLER]
