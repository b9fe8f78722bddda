"""Does a value that the text does not state follow from it all the same ("next to the Eiffel
Tower")?

The weights were fitted on the rows of one half of the servers of a development corpus that a
language model wrote, and read on the other half: ROC AUC 0.95 (n = 107 rows whose value rules could
not find). The length of the text weighs most: who implies a value
uses words for it, who forgot it does not. That is a habit of whoever wrote, so expect less of it
elsewhere.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.grounding import LIKELY, leaves

Json = Any

_STOPGAP = re.compile(
    r"example\.|\btest|sample|\bfoo\b|random|12345|\babc\b|abc-?\d|xyz|placeholder|\byour|dummy"
    r"|unknown|default|\badmin|\btemp\b|untitled",
    re.IGNORECASE,
)
_NUMBER_WORD = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|twenty|thirty|forty"
    r"|fifty|sixty|hundred|thousand|half|quarter|first|second|third|fourth|fifth|double|triple|both"
    r"|twice|pair|couple|hour|day|week|fortnight|month|year|decade)s?\b",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"\b(?:th(?:at|is) one|the (?:usual|same|other|last|right) one|the usual|the one (?:we|i|you)\b"
    r"|as before|same as|like last time|you know which)",
    re.IGNORECASE,
)
_TYPICAL = 80  # characters of a request that states all it needs


def follows(text: str, unstated: Sequence[Finding], arguments: Json) -> bool:
    """Whether rules would rather believe that the text implies the values of these findings."""
    return weight(text, unstated, arguments) > 0


def weight(text: str, unstated: Sequence[Finding], arguments: Json) -> float:
    """Above 0: more like a value implied; below: more like one forgotten or made up."""
    values = _values(unstated, arguments)
    signs = _signs(text, unstated, values, arguments)
    return sum(_WEIGHTS[name] * float(sign) for name, sign in signs.items()) + _BIAS


_BIAS = -0.55
_WEIGHTS = {
    "length": 2.8, "all_likely": 0.3, "some_likely": 0.05, "code": 0.7, "names": 0.9,
    "number_words": 0.2, "opaque": -0.2, "stopgap": -0.75, "digits": -0.9, "address": -0.4,
    "digits_from_nowhere": -0.9,
    # By hand, for the corpus hardly has them: the text points elsewhere, or it states another value
    # of the very same shape (LB-48213 where the call says EK-23740).
    "elsewhere": -4.0, "rival": -4.0,
}  # fmt: skip


def _signs(
    text: str, unstated: Sequence[Finding], values: Sequence[str], arguments: Json
) -> Mapping[str, Any]:
    likely = [f"({LIKELY})" in finding.reason for finding in unstated]
    digits = bool(re.search(r"\d", text))
    spoken = bool(_NUMBER_WORD.search(text))
    return {
        "length": max(-1.0, min(1.5, math.log(max(1, _length(text)) / _TYPICAL))),
        "all_likely": all(likely),
        "some_likely": any(likely),
        "code": any(re.search(r"[(){}=;$|]", value) for value in values),
        "names": min(2, _names(text)),
        "number_words": spoken,
        "opaque": any(map(_opaque, values)),
        "stopgap": any(_STOPGAP.search(value) for value in values),
        "digits": digits,
        "rival": _rival(text, values, arguments),
        "elsewhere": bool(_ELSEWHERE.search(text)),
        "address": any("@" in value for value in values),
        "digits_from_nowhere": not digits
        and not spoken
        and any(re.search(r"\d", value) for value in values),
    }


def _rival(text: str, values: Sequence[str], arguments: Json) -> bool:
    """Whether the text states something of a value's shape, digits included, that no call uses."""
    used = " ".join(str(value) for _, value in leaves(arguments, {})).casefold()
    shapes = {_shape(value) for value in values if re.search(r"\d", value)}
    said = re.findall(r"[\w@][\w@./:+-]*[\w]|\d", text)
    return any(_shape(word) in shapes and word.casefold() not in used for word in said)


def _shape(text: str) -> str:
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", text))


def _length(text: str) -> int:
    """Characters, those of scripts that need few of them counted three times."""
    return sum(1 if ord(char) < 0x2E80 else 3 for char in text)


def _names(text: str) -> int:
    """Capitalised words that do not begin a sentence."""
    return len(re.findall(r"(?<![.!?:])(?<=\s)[^\w\s]?[A-Z][a-z]+", text))


def _opaque(value: str) -> bool:
    """An id, hash or key: nobody guesses one."""
    digits = len(re.findall(r"\d", value))
    mixed = digits >= 3 and bool(re.search(r"[A-Za-z]", value)) and " " not in value
    return (mixed and len(value) >= 6) or (digits >= 8 and "." not in value)


def _values(unstated: Sequence[Finding], arguments: Json) -> list[str]:
    """The values in question, as text; a finding names its path in one call's arguments."""
    calls = [arguments] if not _many(arguments) else list(arguments.values())
    by_path = {
        path: value for call in calls for name, held in call.items()
        for path, value in leaves(held, {}, name)
    }  # fmt: skip
    return [str(by_path[finding.path]) for finding in unstated if finding.path in by_path]


def _many(arguments: Json) -> bool:
    return all(key.isdecimal() and isinstance(held, Mapping) for key, held in arguments.items())
