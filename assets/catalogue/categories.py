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
    text, names = _OWNER.sub(" ", text), _OWNER.sub(" ", names)
    words = re.findall(r"[a-z0-9]+", _split_words(text).lower())
    words += re.findall(r"[a-z0-9]+", _split_words(names).lower()) * 2
    scores = {
        name: sum(word in vocabulary for word in words) for name, vocabulary in _LOOKUP.items()
    }
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else "other"


def _split_words(text: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
