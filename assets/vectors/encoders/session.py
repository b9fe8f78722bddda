"""Tokenizing texts and running an ONNX encoder: one session, any number of threads.

A batch holds texts of one length, so nothing is padded. In bulk, texts run side by side, each on
one thread. A single query has the cores for itself: two made it 1.6x as fast (60 tokens: 11.7 ms
against 18.3). Threads never spin: on a busy machine that made a query 1.7x as slow. A long text is
first cut where a token surely ends, as 1 MB of text took 1.1 to 2.4 s for 128 tokens.
"""

import os
import re
import threading
import unicodedata
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.vectors.encoders.embedder import EncoderFiles, Progress
from assets.vectors.encoders.graph import IDS, MASK, VECTORS
from warehouse.sanitize.untrusted_text import drop_surrogates

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


class TextTokenizer:
    """A tokenizer of a `tokenizer.json`, for several threads. both_ends: of a longer text than
    `max_tokens` its first and its last half count."""

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
    def _reading(self) -> "TokenizerCoverage":
        return TokenizerCoverage(self._tokenizer)

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
        overflow = first.overflowing
        if not overflow:
            return whole
        pieces = [
            (word, span)
            for part in (first, *overflow)
            for word, span, special in zip(
                part.word_ids, part.offsets, part.special_tokens_mask, strict=True
            )
            if not special
        ]
        most = len(first.ids) - sum(first.special_tokens_mask)
        half = most // 2
        head = whole[: pieces[most - half - 1][1][1]]
        begins = range(len(pieces) - half, len(pieces))  # of the last words, as far as they fit
        words = (at for at in begins if pieces[at][0] != pieces[at - 1][0])
        return f"{head} {whole[pieces[next(words, -half)][1][0] :]}"

    def _encode_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        whole = [drop_surrogates(text) for text in texts]
        out = [np.zeros(0, np.int64)] * len(whole)
        due, length = list(range(len(whole))), _PART
        while due:
            pieces = [_cut_text(whole[place], length) for place in due]
            encoded = self._tokenizer.encode_batch_fast(pieces)
            lacking = []
            for place, part, encoding in zip(due, pieces, encoded, strict=True):
                out[place] = np.array(encoding.ids, np.int64)
                if len(part) < len(whole[place]) and len(out[place]) < self._max:
                    lacking.append(place)
            due, length = lacking, length * 8
        return out


class TokenizerCoverage:
    """How much of a text a tokenizer knows: the share of its letters that stand in pieces of
    several letters, or are pieces of a script whose letters are words.

    An encoder has a vector for each piece, and one that only spells a script, or calls its words
    unknown, has learnt nothing of them. By MiniLM's it is .99 for English, .79 to .96 for other
    languages in Latin letters and at most .38 for all others; by XLM-R's .70 to 1.00.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        try:
            self._unknown = {piece.id for piece in tokenizer.model.tokenize(_IN_NO_VOCABULARY)}
        except Exception:  # a plain one, of the Rust library: a Unigram without an unknown piece
            self._unknown = set[int]()

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
        known_letters = set[int]()
        for piece, (start, stop) in pieces:
            letters = places.intersection(range(start, stop))
            if piece not in self._unknown and (len(letters) > 1 or self._is_sign(text, letters)):
                known_letters |= letters
        return len(known_letters) / len(places) if places else 1.0

    def _is_sign(self, text: str, letters: Iterable[int]) -> bool:
        """Whether it is one letter that is a word: no look at the vocabulary for ASCII."""
        return any(not text[at].isascii() and text[at] in self._signs for at in letters)

    @cached_property
    def _signs(self) -> frozenset[str]:
        """Letters that are pieces of their own, of scripts with at least `_SIGNS` of them."""
        size = self._tokenizer.get_vocab_size()
        pieces = self._tokenizer.decode_batch([[at] for at in range(size)])
        by_piece = ([char for char in piece if char.isalpha()] for piece in pieces)
        letters = {found[0] for found in by_piece if len(found) == 1}
        by_script: dict[str, set[str]] = defaultdict(set)
        for letter in letters:
            by_script[unicodedata.name(letter, "").partition(" ")[0]].add(letter)
        return frozenset().union(*(of for of in by_script.values() if len(of) >= _SIGNS))


def _cut_text(text: str, length: int) -> str:
    """At most `length` characters that end where a token ends; the whole text where none does."""
    if len(text) <= length:
        return text
    match = _UP_TO_AN_END.match(text, 0, length)
    return match[0] if match else text


def _iterate_slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _SLICE):
        yield texts[start : start + _SLICE]


_Run = Callable[[list[int]], np.ndarray]
MODEL, TOKENIZER = "encoder.onnx", "tokenizer.json"
FP32 = "fp32"
# Beyond this a batch costs more per token again: what it computes leaves the core's cache.
_TOKENS = 512
_MOST_THREADS = 8


class OnnxEncoder(ABC):
    """Unit vectors of texts by an ONNX model, safe to use from any number of threads.

    `threads`: how many texts of one call are computed at once, by default as many as there are
    cores (at most 8). Calls do not wait for each other: with 32 of them at once a turnstile saved
    no time of the processor and made the slowest twentieth 1.6x as slow. `within`: threads that
    share one text.
    """

    def __init__(
        self,
        model: bytes | Callable[[], bytes],
        tokenizer: bytes,
        *,
        name: str,
        max_tokens: int,
        threads: int | None = None,
        within: int = 1,
        dim: int | None = None,
        both_ends: bool = False,
    ) -> None:
        """model: the ONNX file, or with `dim` a function that builds it at the first text."""
        self.id, self.max_tokens = name, max_tokens
        self.tokenizer = tokenizer
        self._tokens = TextTokenizer(tokenizer, max_tokens, both_ends=both_ends)
        self._opening, self._session = threading.Lock(), None
        self._make: Callable[[], bytes] | None = model if callable(model) else lambda: model
        self._within = within
        self.dim = dim or int(self.open().get_outputs()[0].shape[1])
        self._threads = max(1, threads or min(count_cores(), _MOST_THREADS))

    def open(self) -> Any:
        """The session; who serves opens it before the first question comes."""
        with self._opening:
            if self._session is None and self._make:
                self._session, self._make = _open_session(self._make(), self._within), None
            return self._session

    @abstractmethod
    def model(self) -> bytes:
        """The ONNX file. It is not kept in memory for the one time that it is saved."""

    def saved(self) -> EncoderFiles:
        """What `save_encoder` writes."""
        facts = {"kind": "onnx", "max_tokens": self.max_tokens, "precision": FP32}
        return EncoderFiles(facts, {MODEL: self.model(), TOKENIZER: self.tokenizer})

    def count_tokens(self, text: str) -> int:
        """Tokens that are read of a text, with the special ones; `max_tokens` at most."""
        return len(self._tokens([text])[0])

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """How much of each text its tokenizer knows, float32 [len(texts)], 0..1."""
        return self._tokens.measure_reading(texts)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim]; a text that is given twice is computed once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        ids = self._tokens(list(places))
        out = np.empty((len(ids), self.dim), np.float32)
        batches = _split_batches([len(each) for each in ids])
        done = 0

        def run(batch: list[int]) -> np.ndarray:
            rows = np.stack([ids[place] for place in batch])
            return self.open().run([VECTORS], {IDS: rows, MASK: np.ones_like(rows)})[0]

        for batch, vectors in zip(batches, self._embed_parallel(run, batches), strict=True):
            out[batch] = vectors
            done += len(batch)
            if on_done:
                on_done(done, len(ids))
        return out[[places[text] for text in texts]]

    def _embed_parallel(self, run: _Run, batches: list[list[int]]) -> Iterator[np.ndarray]:
        if len(batches) < 2 or self._threads == 1:  # a query: no thread is worth starting
            yield from map(run, batches)
            return
        with ThreadPoolExecutor(min(self._threads, len(batches))) as pool:
            yield from pool.map(run, batches)


def count_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open_session(model: bytes, within: int) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = within, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _split_batches(lengths: Sequence[int]) -> list[list[int]]:
    """Places of texts of equal length, at most `_TOKENS` a batch, the longest first."""
    by_length: Mapping[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        by_length[length].append(place)
    out = []
    for length, places in sorted(by_length.items(), reverse=True):
        most = max(1, _TOKENS // max(length, 1))
        out += [places[start : start + most] for start in range(0, len(places), most)]
    return out
