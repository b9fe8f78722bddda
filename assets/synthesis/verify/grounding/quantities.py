# ruff: noqa: E501  (tables of patterns read better unbroken)
"""Numbers with what they count: percent, prefixes of units, hemispheres."""

import re

_PERCENT = re.compile(r"%|percent|per cent|prozent|yuzde|por ?cento|процент|بالمئة|パーセント")
_TENTHS = re.compile(r"out of (?:10|ten)\b|/10\b|von zehn|sur dix|sobre diez|de dez")
# What is said -> how many of the plain unit it is.
_PREFIXED = (
    (re.compile(r"\d\s*k\b|\bk(?:m|g|w|hz|v|b|j|pa|ib|n|cal)s?\b|\d\s*k(?:m|g|w|hz|v|b|j|pa|ib)\b"), 1e3),
    (re.compile(r"\bkilo|kilomet|公里|千米"), 1e3),
    (re.compile(r"\bm(?:hz|w|b|ib|pa|v)\b|\d\s*m(?:hz|w|b|ib|pa|v)\b|\bmega|\bmegs?\b"), 1e6),
    (re.compile(r"\bg(?:hz|w|b|ib|pa)\b|\d\s*g(?:hz|w|b|ib|pa)\b|\bgiga|\bgigs?\b"), 1e9),
    (re.compile(r"\bt(?:b|w|ib)\b|\d\s*t(?:b|w|ib|hz)\b|\btera"), 1e12),
    (re.compile(r"\d\s*cm\b|\bcm\b|centimet|\bcents?\b|\bpence\b"), 0.01),
    (re.compile(r"\d\s*m(?:m|s|g|l|a|v)\b|\bmilli"), 1e-3),
    (re.compile(r"\d\s*[uµμ](?:m|s|g|l|a|f)\b|\bmicro"), 1e-6),
    (re.compile(r"\d\s*n(?:m|s|f)\b|\bnano"), 1e-9),
    (re.compile(r"[$€£]|dollar|euro|pound|\bchf\b|\beur\b|\busd\b"), 100.0),  # in cents
)  # fmt: skip
_BINARY = (
    (re.compile(r"\d\s*ki?b\b|kilobyte"), 1024.0),
    (re.compile(r"\d\s*mi?b\b|megabyte|\bmegs?\b"), 1024.0**2),
    (re.compile(r"\d\s*gi?b\b|gigabyte|\bgigs?\b"), 1024.0**3),
    (re.compile(r"\d\s*gi?b\b|gigabyte|\bgigs?\b"), 1024.0),  # counted in megabytes
)


def scaled(value: float, folded: str, numbers: set[float]) -> bool:
    """Whether a number of the text, with the unit that the text names, comes to `value`."""
    factors = [factor for said, factor in (*_PREFIXED, *_BINARY) if said.search(folded)]
    factors += [0.01] if _PERCENT.search(folded) else []
    factors += [0.1] if _TENTHS.search(folded) else []
    return any(
        abs(number * factor - value) <= 1e-9 * max(1.0, abs(value))
        for factor in factors
        for number in numbers
    )


def signed_otherwise(value: float, folded: str) -> bool:
    """Whether the text gives this coordinate the other hemisphere: 33.85 south for 33.85."""
    written = re.escape(f"{abs(value):.10f}".rstrip("0").rstrip("."))
    away = rf"(?<![\d.]){written}0*\s*(?:°|degrees?\b|deg\b)?\s*(?:(?:s|w)\b|south|west|sud\b|oeste|ouest|sur\b|guney|bati)"
    return value > 0 and re.search(away, folded) is not None
