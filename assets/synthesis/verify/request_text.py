"""A request, read once for all values that are looked up in it, and names that mean the same."""

import re
from dataclasses import dataclass
from functools import cache, cached_property

from assets.synthesis.verify.numbers import TextNumbers, find_ranges, find_spelled_digits
from assets.synthesis.verify.times import Day, find_written_dates, grade_date, list_time_units
from assets.synthesis.verify.words import fold_text, make_synonyms, stem_word
from assets.vectors.lexicon import collect_words, find_base_form, find_family

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

    names = {name: set(others) for name, others in make_synonyms().items()}
    groups = [set(group.split()) for group in _SAME]
    codes = [code for code in States.states_abbr if code != "DC"]
    groups += [{fold_text(n), fold_text(c)} for n, c in zip(States.states, codes, strict=True)]
    for group in groups:
        for name in group:
            names.setdefault(name, set()).update(group - {name})
    return {name: tuple(sorted(others)) for name, others in names.items()} | _SPELLED


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
    r"|alphabetical\w{0,9}|a to z|a-z|ascending|rising|increasing|low to high)\b"
)
_DOWN = re.compile(
    r"\b(?:newest|latest|highest|biggest|largest|greatest|most|top|longest|best|recent"
    r"|descending|falling|decreasing|reverse|z to a|high to low)\b"
)


def names_direction(value: str, folded: str) -> bool:
    """Whether a sort direction (asc, Descending) is what a superlative of the text says."""
    pattern = {"asc": _UP, "ascending": _UP, "desc": _DOWN, "descending": _DOWN}.get(value)
    return pattern is not None and pattern.search(folded) is not None


# Characters of a request, and of one value, that are read; what is longer is no request
# (`pair_checks.py`), and what is pasted repeats itself in its first thousands.
LONGEST = 12_000


@dataclass(frozen=True)
class RequestText:
    """A request, read once for all its values."""

    raw: str

    @cached_property
    def folded(self) -> str:
        return fold_text(self.raw[:LONGEST])

    @cached_property
    def squeezed(self) -> str:
        return "".join(char for char in self.folded if char.isalnum())

    @cached_property
    def places(self) -> list[int]:
        """Where each character of `squeezed` stands in `folded`."""
        return [place for place, char in enumerate(self.folded) if char.isalnum()]

    @cached_property
    def spaced(self) -> str:
        """Words with one blank between them, and around."""
        words = re.findall(r"[^\W_]+", self.folded)
        return f" {' '.join(words)} "

    @cached_property
    def words(self) -> set[str]:
        """Words as they stand."""
        return set(re.findall(r"\w+", self.folded))

    @cached_property
    def tokens(self) -> set[str]:
        """Words and their stems, words of identifiers and the folded aliases of known names."""
        words = set(self.words)
        aliases = make_aliases()
        words |= {part for word in words if "_" in word for part in word.split("_")}
        words |= {alias for word in words for alias in aliases.get(word, ())}
        return words | {stem_word(word) for word in words}

    @cached_property
    def beginnings(self) -> set[str]:
        """How longer words begin: what inflection leaves alone."""
        return {word[:length] for word in self.words for length in (5, 6, 7) if len(word) >= length}

    @cached_property
    def families(self) -> set[str]:
        """The families of the verbs that it uses."""
        verbs = {find_base_form(word) for word in self.words} - {None}
        return {family for verb in verbs if (family := find_family(verb or ""))}

    @cached_property
    def numbers(self) -> TextNumbers:
        return TextNumbers(self.folded)

    @cached_property
    def time_units(self) -> list[int]:
        """The units of time that it speaks of, in seconds."""
        return list_time_units(self.folded)

    @cached_property
    def ranges(self) -> list[tuple[float, float]]:
        return find_ranges(self.folded)

    @cached_property
    def written(self) -> set[Day]:
        return find_written_dates(self.folded)

    @cached_property
    def digits(self) -> set[str]:
        """Digits in a row: separators out of the way, or said one by one."""
        spelled = find_spelled_digits(re.findall(r"[^\W\d_]+", self.folded.replace("-", " ")))
        runs = re.findall(r"\d(?:[\d ().\-]{0,40}\d)?", self.folded)
        return {re.sub(r"\D", "", run) for run in runs} | set(spelled) | {"".join(spelled)}

    def grade_day(self, day: Day) -> str:
        return grade_date(day, self.folded, self.numbers, self.written)
