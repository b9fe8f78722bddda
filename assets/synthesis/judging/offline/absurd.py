# ruff: noqa: E501  (tables of phrases read better unbroken)
"""Is a request nonsense? What rules can see of it: things with feelings, time run backwards,
weekdays as colours, words that go round in circles.
"""

import re
from collections import Counter
from typing import Any

from assets.synthesis.verify.grounding.grounding import fold, leaves

Json = Any

_FEELING = (
    r"feelings?|emotions?|emotional(?:ly)?|happiness|sadness|loneliness|regrets?|gefuhle?|traume?"
    r"|traurig\w*|suenos|suenan?|lloran?|childhood|kindheit|soul|dream(?:s|ing)? of|my dreams"
    r"|forgets? how|learns? to (?:read|swim|dance|sing|fly|love)|apologi[sz]es?|sabe bailar|sepa bailar"
    r"|misses? (?:its|their|his|her) mother|of my heart|is (?:sad|lonely|jealous)|favou?rite song"
)
_SENSE = (
    r"(?:taste|tastes|smell|smells|flavou?r|colou?r|sound|scent|temperature|weight) of (?:the |a |its |an )?"
    r"(?!(?:text|background|line|border|font|button|water|air|wine|coffee|body|package|image|logo|car|wall"
    r"|header|sky|house|room|the)\b)[a-z]+"
    r"|(?:tastes?|smells?) like (?:the |a |an )?[a-z]+"
)
_HUE = r"(?:purple|blue|green|yellow|orange|pink|violet|crimson|turquoise|red)"
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_MIXED = (
    rf"{_HUE} (?:{_DAY}|intelligence|thoughts?|silence|numbers?|ideas?)"
    rf"|(?:width|height|author|number|price|date|size|age) (?:is )?{_HUE}|colou?r (?:of )?(?:\w+teen|seven|nine|three)"
    rf"|made of (?:{_DAY}|thunder|music|regret|silence|moonlight|time|wind|dreams)|bed of {_DAY}"
    rf"|vulnerable to {_DAY}|thinking in (?:the )?colou?r"
)
_TIME = (
    r"yesterday's future|future comments"
    r"|before (?:it|he|she|they) (?:was|were|is|has been) (?:\w+ )?(?:written|opened|born|invented|made|created|founded|closed|sent|asked)"
    r"|before (?:the|a) (?:file|\w+) was (?:written|born|invented)|bevor \w+ \w+ geboren|from the (?:future|end of time)"
    r"|that (?:do not|don't|aun no|never) exist\w*|que aun no existen|before breakfast dot|the end of (?:paper|time|numbers)"
    r"|of all time but|starting from tomorrow and|until the \w+ (?:stops?|quits?|forgets?) being?\b"
)
_STRANGE = (
    r"bananas?|dinosaurs?|unicorns?|dragons?|moonlight|the moon|of the stars|thunder|invisible|imaginary"
    r"|silence|telepath\w*|anti-?gravity|infinity|entire internet|the whole universe|my cousin's happiness"
    r"|nubes|fish|fisch|peces|cheese|socks?|trousers|triangles?|dreieck\w*|lauwarm\w*|cuadrad\w*"
    rf"|backwards?|sideways|inside out|ruckwarts|hacia dentro|(?:is|are|be) {_HUE}"
    r"|minus (?:one|two|three|five|seven|nine|the)|emotional|taste|smell|flavou?r"
)
_CONTRARY = (
    r"\b(\w{4,}) (?:but|and|which is|yet) (?:also )?not (?:an? )?\1\b|does not not\b|is not not\b"
    r"|no letters|nothing at all except|all \w+ numbers except"
    r"|divided by (?:the|my) [a-z]+|multipl\w+ (?:its|the|it|them|their) \w+ by the [a-z]+|fold (?:it|them) twice"
    r"|every conversation that has ever|ask it how|an? (?:input|output) of itself|of itself\b"
)
_SIGNS = {
    "a thing is given feelings": re.compile(rf"\b(?:{_FEELING})\b"),
    "a sense is asked of what has none": re.compile(rf"\b(?:{_SENSE})\b"),
    "colours, days and numbers change places": re.compile(rf"\b(?:{_MIXED})"),
    "time runs backwards": re.compile(rf"\b(?:{_TIME})"),
    "it contradicts itself": re.compile(rf"(?:{_CONTRARY})"),
}
_WEAK = re.compile(rf"\b(?:{_STRANGE})\b")


def absurdity(instruction: str, arguments: Json) -> list[str]:
    """Why the request reads as nonsense; empty where too little says so.

    A strange word alone is common sense in some trade (a fish shop, a word spelt backwards): it
    takes two of them.
    """
    text = fold(instruction)
    found = [why for why, sign in _SIGNS.items() if sign.search(text)]
    strange = {match.group() for match in _WEAK.finditer(text)}
    if len(strange) > 1:
        found.append(f"{', '.join(sorted(strange))} in one request")
    if circling := _circles(text, arguments):
        found.append(f"{circling!r} goes round in circles")
    return found


def _circles(text: str, arguments: Json) -> str | None:
    """A word of a short text that keeps coming back where one mention would do."""
    words = re.findall(r"[^\W\d_]{4,}", text)
    if not 6 <= len(words) <= 40:
        return None
    quoted = set(re.findall(r"[^\W\d_]{4,}", " ".join(re.findall(r"['\"«“].*?['\"»”]", text))))
    long = {w for _, v in leaves(arguments, {}) if len(str(v)) > 40
            for w in re.findall(r"[^\W\d_]{4,}", fold(str(v)))}  # fmt: skip
    counts = Counter(word[:5] for word in words if word not in quoted | long)
    word, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return word if most >= 3 and most / len(words) >= 0.3 else None
