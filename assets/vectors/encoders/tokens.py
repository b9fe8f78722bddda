"""Texts to token ids, cut at the encoder's limit, and how much of a text its tokenizer knows.

A description of 1 MB took 1.1 to 2.4 s, to keep 128 of its tokens. So a long text is first cut
where a token surely ends, and more of it is read only when that part has too few tokens: the ids
are those of the whole text.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from warehouse.sanitize.escape import drop_surrogates

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PART = 2048  # characters read at first; nearly all texts have their 128 tokens in that
_SPAN = 4096  # characters of each end that are looked at where both ends count
_SLICE = 4096  # texts at a time: what the tokenizer returns is far larger than the ids
# After one of these a new token begins, whatever follows: white space, marks that stand alone, and
# Chinese characters. Brackets are none: `[SEP]` in a text is one token.
_UP_TO_AN_END = re.compile("(?s).*[ \t\n\r!-/:-@{-~\u4e00-\u9fff]")
# Letters of a script that are pieces by themselves, from which on a letter is a word or a syllable
# and not the end of a spelling. A thousand Han characters are nine tenths of running Chinese.
# MiniLM's vocabulary has 488, XLM-R's 7,690 and 1,761 of Hangul, no alphabet more than 500.
_SIGNS = 1_000
_IN_NO_VOCABULARY = "\U0010fffd"  # private use: what a tokenizer makes of it is its unknown token


class Tokens:
    """A tokenizer read from the bytes of a `tokenizer.json`; safe to use from several threads.

    both_ends: of a text that has more than `max_tokens` its first and its last half of them count,
    as of a request: what is asked stands last in a conversation, first in a letter.
    """

    def __init__(self, tokenizer: bytes, max_tokens: int, *, both_ends: bool = False) -> None:
        from tokenizers import Tokenizer

        self._max, self._both_ends = max_tokens, both_ends
        self._tokenizer = Tokenizer.from_str(tokenizer.decode())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int64 ids of each text, at most `max_tokens`."""
        texts = self.keep_ends(texts)
        return [ids for part in _iterate_slices(texts) for ids in self._encode_ids(part)]

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """`Reading.measure` of as much of each text as is encoded."""
        return self._reading.measure([_cut_text(text, _PART) for text in self.keep_ends(texts)])

    @cached_property
    def _reading(self) -> "Reading":
        return Reading(self._tokenizer)

    def keep_ends(self, texts: Sequence[str]) -> Sequence[str]:
        """Texts without their middle, where it is too much and both ends count."""
        return [self._drop_middle(text) for text in texts] if self._both_ends else texts

    def _drop_middle(self, text: str) -> str:
        if len(text) < self._max:
            return text
        whole = drop_surrogates(text)
        if len(whole) > 2 * _SPAN:
            whole = f"{whole[:_SPAN]} {whole[-_SPAN:]}"
        first = self._tokenizer.encode(whole)
        rest = first.overflowing
        if not rest:
            return whole
        pieces = [
            (word, span)
            for part in (first, *rest)
            for word, span, special in zip(
                part.word_ids, part.offsets, part.special_tokens_mask, strict=True
            )
            if not special
        ]
        most = len(first.ids) - sum(first.special_tokens_mask)
        half = most // 2
        head = whole[: pieces[most - half - 1][1][1]]
        return f"{head} {whole[_find_tail(pieces, half) :]}"

    def _encode_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        whole = [drop_surrogates(text) for text in texts]
        out = [np.zeros(0, np.int64)] * len(whole)
        due, length = list(range(len(whole))), _PART
        while due:
            parts = [_cut_text(whole[place], length) for place in due]
            encoded = self._tokenizer.encode_batch_fast(parts)
            lacking = []
            for place, part, encoding in zip(due, parts, encoded, strict=True):
                out[place] = np.array(encoding.ids, np.int64)
                if len(part) < len(whole[place]) and len(out[place]) < self._max:
                    lacking.append(place)
            due, length = lacking, length * 8
        return out


class Reading:
    """How much of a text a tokenizer knows: the share of its letters that stand in pieces of
    several letters, or are pieces of a script whose letters are words.

    An encoder has a vector for each piece, and one that only spells a script, or calls its words
    unknown, has learnt nothing of them. By MiniLM's it is .99 for English, .79 to .96 for other
    languages in Latin letters and at most .38 for all others; by XLM-R's .70 to 1.00.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._unknown = _find_unknown(tokenizer)

    def measure(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 [len(texts)], 0..1; 1 for a text without a letter."""
        whole = [drop_surrogates(text) for text in texts]
        if len(whole) == 1:  # a query: no thread is worth waking
            encoded = [self._tokenizer.encode(whole[0], add_special_tokens=False)]
        else:
            encoded = self._tokenizer.encode_batch(whole, add_special_tokens=False)
        shares = [self._measure_one(*of) for of in zip(whole, encoded, strict=True)]
        return np.array(shares, np.float32)

    def _measure_one(self, text: str, encoding: Any) -> float:
        pieces = list(zip(encoding.ids, encoding.offsets, strict=True))
        end = max((stop for _, (_, stop) in pieces), default=0)
        places = {at for at, char in enumerate(text[:end]) if char.isalpha()}
        known = set[int]()
        for piece, (start, stop) in pieces:
            letters = places.intersection(range(start, stop))
            if piece not in self._unknown and (len(letters) > 1 or self._is_sign(text, letters)):
                known |= letters
        return len(known) / len(places) if places else 1.0

    def _is_sign(self, text: str, letters: Iterable[int]) -> bool:
        """Whether it is one letter that is a word: no look at the vocabulary for ASCII."""
        return any(not text[at].isascii() and text[at] in self._signs for at in letters)

    @cached_property
    def _signs(self) -> frozenset[str]:
        """Letters that are pieces of their own, of scripts with at least `_SIGNS` of them."""
        size = self._tokenizer.get_vocab_size()
        pieces = self._tokenizer.decode_batch([[at] for at in range(size)])
        letters = {found[0] for piece in pieces if len(found := _list_letters(piece)) == 1}
        by_script: dict[str, set[str]] = defaultdict(set)
        for letter in letters:
            by_script[unicodedata.name(letter, "").partition(" ")[0]].add(letter)
        return frozenset().union(*(of for of in by_script.values() if len(of) >= _SIGNS))


def _find_unknown(tokenizer: "Tokenizer") -> set[int]:
    try:
        return {piece.id for piece in tokenizer.model.tokenize(_IN_NO_VOCABULARY)}
    except Exception:  # a plain one, of the Rust library: a Unigram without an unknown piece
        return set()


def _list_letters(piece: str) -> list[str]:
    return [char for char in piece if char.isalpha()]


def _find_tail(pieces: Sequence[tuple[int | None, tuple[int, int]]], most: int) -> int:
    """Where the last words begin that have at most so many pieces together: an end of a word is
    more pieces by itself than in it. Of a word that is longer its last pieces.

    pieces: (which word it is of, where it stands) of a text of more than `most`."""
    begins = range(len(pieces) - most, len(pieces))
    whole = (at for at in begins if pieces[at][0] != pieces[at - 1][0])
    return pieces[next(whole, -most)][1][0]


def _cut_text(text: str, length: int) -> str:
    """At most `length` characters that end where a token ends; the whole text where none does."""
    if len(text) <= length:
        return text
    found = _UP_TO_AN_END.match(text, 0, length)
    return found[0] if found else text


def _iterate_slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _SLICE):
        yield texts[start : start + _SLICE]
