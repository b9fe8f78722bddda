"""A long text is cut before it is tokenised, and its ids are those of the whole text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from assets.vectors.encoders import tokens
from assets.vectors.encoders.tokens import Tokens
from assets.vectors.encoders.weights import find_base_path

FILE = (find_base_path() / "tokenizer.json").read_bytes()
WHOLE = Tokenizer.from_str(FILE.decode())
WHOLE.no_padding()
WHOLE.enable_truncation(128)
PIECES = st.sampled_from(
    ["word ", "[SEP]", "[", "SEP]", "é", "e\u0301", "\u0301", "，", "你好", " ", "\n", "\x1c",
     "\u00a0", "\u2028", "a" * 90, "aB3", "x-y_z", "###", "</tool>", "🙂", "\u200d", "İ", "ß",
     "1.5"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=120).map("".join), st.integers(1, 60))
def test_the_ids_are_those_of_the_whole_text(text: str, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_PART", part)
        found = Tokens(FILE, 128)([text])
    assert found[0].tolist() == WHOLE.encode(text).ids


def test_a_long_text_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    ours = Tokens(FILE, 128)
    encode = ours._tokenizer.encode_batch_fast

    class Watched:
        def encode_batch_fast(self, texts: list[str]) -> list:
            read.append(sum(map(len, texts)))
            return encode(texts)

    monkeypatch.setattr(ours, "_tokenizer", Watched())
    text = "some words of a description " * 40_000
    assert ours([text])[0].tolist() == WHOLE.encode(text).ids
    assert sum(read) <= 2048


def test_texts_keep_their_order_beyond_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_SLICE", 3)
    texts = [f"text {number}" for number in range(10)]
    found = Tokens(FILE, 128)(texts)
    for text, ids in zip(texts, found, strict=True):
        assert np.array_equal(ids, WHOLE.encode(text).ids)
