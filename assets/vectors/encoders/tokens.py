"""Texts to token ids, cut at the encoder's limit.

A description of 1 MB took 1.1 to 2.4 s, to keep 128 of its tokens. So a long text is first cut
where a token surely ends, and more of it is read only when that part has too few tokens: the ids
are those of the whole text.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from warehouse.sanitize.escape import drop_surrogates

_PART = 2048  # characters read at first; nearly all texts have their 128 tokens in that
_SLICE = 4096  # texts at a time: what the tokenizer returns is far larger than the ids
# After one of these a new token begins, whatever follows: white space, marks that stand alone, and
# Chinese characters. Brackets are none: `[SEP]` in a text is one token.
_UP_TO_AN_END = re.compile("(?s).*[ \t\n\r!-/:-@{-~\u4e00-\u9fff]")


class Tokens:
    """A tokenizer read from the bytes of a `tokenizer.json`; safe to use from several threads."""

    def __init__(self, tokenizer: bytes, max_tokens: int) -> None:
        from tokenizers import Tokenizer

        self._max = max_tokens
        self._tokenizer = Tokenizer.from_str(tokenizer.decode())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """int64 ids of each text, at most `max_tokens`."""
        return [ids for part in _iterate_slices(texts) for ids in self._encode_ids(part)]

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


def _cut_text(text: str, length: int) -> str:
    """At most `length` characters that end where a token ends; the whole text where none does."""
    if len(text) <= length:
        return text
    found = _UP_TO_AN_END.match(text, 0, length)
    return found[0] if found else text


def _iterate_slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _SLICE):
        yield texts[start : start + _SLICE]
