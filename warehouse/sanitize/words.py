"""The words of a text, as two texts are compared by them."""

import re
import unicodedata

# One sign of Chinese, Japanese or Korean is a word here, as no space parts them.
_FOLDED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+?(?=[\u3040-\u9fff]|\b|_)")


def fold_words(text: str) -> list[str]:
    """The words of a text as two texts are compared: NFKC, case folded, without punctuation."""
    return _FOLDED.findall(unicodedata.normalize("NFKC", text).casefold())
