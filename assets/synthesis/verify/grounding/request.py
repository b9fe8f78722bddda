"""A request, read once for all the values that are looked for in it."""

import re
from dataclasses import dataclass
from functools import cache, cached_property

from assets.synthesis.verify.grounding.dates import Day, find_written_dates, grade_date
from assets.synthesis.verify.grounding.folding import fold_text, stem_word
from assets.synthesis.verify.grounding.known_names import make_aliases
from assets.synthesis.verify.grounding.number_words import (
    Numbers,
    find_ranges,
    find_spelled_digits,
)
from assets.synthesis.verify.grounding.times import list_time_units
from assets.vectors.lexicon import find_base_form, find_family

# Characters of a request, and of one value, that are read; what is longer is no request
# (`checks/request_form.py`), and what is pasted repeats itself in its first thousands.
LONGEST = 12_000


@cache
def _list_spaced_names() -> list[str]:
    return [name for name in make_aliases() if " " in name]


@dataclass(frozen=True)
class Text:
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
        known = make_aliases()
        words |= {part for word in words if "_" in word for part in word.split("_")}
        words |= {alias for word in words for alias in known.get(word, ())}
        spoken = f" {self.folded} "
        words |= {a for name in _list_spaced_names() if name in spoken for a in known[name]}
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
    def numbers(self) -> Numbers:
        return Numbers(self.folded)

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
