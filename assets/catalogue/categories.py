"""Categories: what a server is about, by the words of its name and description."""

import re

from warehouse.storage.files import read_data

_WORDS = read_data(__file__, "categories.toml")
# Each run of such characters is tried from its beginning only.
_OWNER = re.compile(
    r"(?<![\w\-])(?<![\w\-]\.)(?:[\w\-]+\.)+[\w\-]+/|@[\w\-]+/|(?<![\w\-])[\w\-]+/(?=[\w\-])"
)
CATEGORIES = (*_WORDS, "other")
_LOOKUP = {name: frozenset(words.split()) for name, words in _WORDS.items()}


def find_category(text: str, names: str = "") -> str:
    """The category of a text. `names`, of the server anywhere, count twice; its publisher not."""
    words = []
    for each, weight in ((text, 1), (names, 2)):
        spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _OWNER.sub(" ", each))
        words += re.findall(r"[a-z0-9]+", spaced.lower()) * weight
    scores = {
        name: sum(word in vocabulary for word in words) for name, vocabulary in _LOOKUP.items()
    }
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else "other"
