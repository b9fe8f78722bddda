"""Names that stand for each other: languages, countries, currencies, units, time zones, orders."""

import re
from functools import cache

from assets.synthesis.verify.grounding.cldr import make_synonyms
from assets.synthesis.verify.grounding.folding import fold_text
from assets.vectors.lexicon import collect_words

_SAME = (
    "python py", "javascript js", "typescript ts", "kubernetes k8s", "postgres postgresql pg",
    "markdown md", "jpeg jpg", "picture image photo", "ascending asc", "descending desc",
    "weekly week weeks 1w", "monthly month months", "daily day days 1d", "hourly hour hours 1h",
    "yearly year annual annually years",
)  # fmt: skip
_SPELLED = {
    "new york": ("nyc",), "united states": ("us", "usa"), "united kingdom": ("uk", "gb"),
    "traditional chinese": ("zhtw", "zhhant"), "simplified chinese": ("zhcn", "zhhans"),
}  # fmt: skip
_RENAMED_ZONES = {
    "Asia/Kolkata": "Asia/Calcutta", "Asia/Ho_Chi_Minh": "Asia/Saigon",
    "Europe/Kyiv": "Europe/Kiev", "Asia/Kathmandu": "Asia/Katmandu",
}  # fmt: skip


@cache
def make_names() -> dict[str, tuple[str, ...]]:
    """What a value, folded and squeezed, may be called in a text."""
    from faker.providers.address.en_US import Provider as States

    found = {name: set(others) for name, others in make_synonyms().items()}
    groups = [set(group.split()) for group in _SAME]
    codes = [code for code in States.states_abbr if code != "DC"]
    groups += [{fold_text(n), fold_text(c)} for n, c in zip(States.states, codes, strict=True)]
    for group in groups:
        for name in group:
            found.setdefault(name, set()).update(group - {name})
    return {name: tuple(sorted(others)) for name, others in found.items()} | _SPELLED


@cache
def make_aliases() -> dict[str, tuple[str, ...]]:
    """What a word of a text may stand for. Short everyday words say nothing as a name."""
    everyday = collect_words("real pound second meter cup won try rand peso dollar")
    return {
        name: codes
        for name, codes in make_names().items()
        if (len(name) > 3 and name not in everyday) or not name.isascii() or name in _TIMES
    }


_TIMES = {"day", "jpg", "yen"}


@cache
def _read_world() -> tuple[dict[str, str], dict[str, set[str]], dict[str, set[str]]]:
    """Currency code -> name; country code -> names of it; time zone -> names of its places."""
    from faker.providers.currency import Provider as Currency
    from faker.providers.date_time import Provider as Countries

    currencies = {code.lower(): fold_text(name) for code, name in Currency.currencies}
    countries: dict[str, set[str]] = {}
    zones: dict[str, set[str]] = {}
    for country in Countries.countries:
        names = {
            " ".join(re.findall(r"\w+", fold_text(n))) for n in (country.name, country.capital)
        }
        names -= {""}
        for code in (country.alpha_2_code, country.alpha_3_code):
            countries.setdefault(code.lower(), set()).update(names)
        for zone in country.timezones if len(country.timezones) < 3 else ():
            zones.setdefault(zone, set()).update(names)
    for now, before in _RENAMED_ZONES.items():
        zones.setdefault(now, set()).update(zones.get(before, ()))
    return currencies, countries, zones


def names_code(value: str, spaced: str, tokens: set[str]) -> bool:
    """Whether a text speaks of what a code stands for: NOK, BR, BRA, America/Sao_Paulo."""
    if not 2 <= len(value) <= 40 or not value.isascii():
        return False
    currencies, countries, zones = _read_world()
    code = value.lower()
    if code in currencies and len(code) == 3:
        words = re.findall(r"\w+", currencies[code])
        if words and all(_means_word(word, tokens) for word in words):
            return True
    names = countries.get(code, set()) | zones.get(value, set())
    return any(f" {name} " in spaced for name in names)


def _means_word(word: str, tokens: set[str]) -> bool:
    """A word or its inflection: krone, kroner; pound, pounds."""
    return word in tokens or any(
        len(t) > 3 and t[:4] == word[:4] and abs(len(t) - len(word)) < 3 for t in tokens
    )


_UP = re.compile(
    r"\b(?:oldest|lowest|smallest|cheapest|least|fewest|earliest|shortest|nearest|closest"
    r"|alphabetical\w*|a to z|a-z|ascending|rising|increasing|low to high)\b"
)
_DOWN = re.compile(
    r"\b(?:newest|latest|highest|biggest|largest|greatest|most|top|longest|best|recent"
    r"|descending|falling|decreasing|reverse|z to a|high to low)\b"
)


def names_direction(value: str, folded: str) -> bool:
    """Whether a sort direction (asc, Descending) is what a superlative of the text says."""
    pattern = {"asc": _UP, "ascending": _UP, "desc": _DOWN, "descending": _DOWN}.get(value)
    return pattern is not None and pattern.search(folded) is not None
