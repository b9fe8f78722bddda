"""Look-alikes: letters of other scripts that are drawn like Latin ones.

The table holds the letters that are drawn alike in common fonts (after Unicode's confusables.txt,
UTS 39), lower case; capitals are folded first.
"""

import unicodedata

_STRICT = {
    "a": "аɑ", "b": "Ƅ", "c": "сϲⅽ", "d": "ԁⅾ", "e": "еҽ", "f": "ϝ", "g": "ɡց", "h": "һհ",
    "i": "іıιӏ", "j": "јϳ", "l": "ⅼǀ", "m": "ⅿ", "n": "ո", "o": "оοօ", "p": "рρ", "q": "ԛգ",
    "s": "ѕ", "u": "υսʋ", "v": "ѵν", "w": "ԝѡɯ", "x": "хχ", "y": "уүγ", "z": "ᴢ",
}  # fmt: skip
_AS_CAPITALS = {"b": "вβ", "e": "ε", "h": "нη", "k": "кκ", "m": "мμ", "t": "тτ", "z": "ζ"}
_LATIN = {
    ord(odd): plain
    for table in (_STRICT, _AS_CAPITALS)
    for plain, odds in table.items()
    for odd in odds
}
_EXACT = frozenset("".join(_STRICT.values()))
_DIGITS = str.maketrans("015", "ols")


def fold_latin(word: str) -> str:
    """A lower-case word with every look-alike letter as its Latin twin."""
    return word.translate(_LATIN)


def is_disguised(word: str, *, wholly: bool = False) -> bool:
    """Whether a word mixes Latin letters with look-alikes; `wholly`: or is spelled with look-alikes
    alone, as some honest Russian and Greek words are too."""
    if word.isascii():
        return False
    text = unicodedata.normalize("NFKC", word).casefold()
    odd = [char for char in text if ord(char) in _LATIN and "\u0370" <= char <= "\u058f"]
    if not odd or not fold_latin(text).isascii():
        return False
    mixed = len(odd) < len(text) and any("a" <= char <= "z" for char in text)
    units = mixed and set(odd) <= set("μη") and len(text) <= 4  # μs, μm
    return (mixed and not units) or (wholly and len(odd) >= 3 and _EXACT.issuperset(odd))


def fold_skeleton(name: str) -> str:
    """What a name looks like at a glance: without case, separators and look-alikes."""
    text = fold_latin(unicodedata.normalize("NFKC", name).casefold())
    text = "".join(char for char in text if char.isalnum())
    return text.translate(_DIGITS).replace("rn", "m").replace("vv", "w").replace("l", "i")
