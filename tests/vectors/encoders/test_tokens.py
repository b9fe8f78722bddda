"""A long text is cut before it is tokenised, and its ids are those of the whole text; how much of
a text a tokenizer knows is told from what it makes of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from assets.vectors.encoders import session
from assets.vectors.encoders.session import TextTokenizer, TokenizerCoverage
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
        patch.setattr(session, "_PART", part)
        found = TextTokenizer(FILE, 128)([text])
    assert found[0].tolist() == WHOLE.encode(text).ids


def test_a_long_text_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    ours = TextTokenizer(FILE, 128)
    encode = ours._tokenizer.encode_batch_fast

    class Watched:
        def encode_batch_fast(self, texts: list[str]) -> list:
            read.append(sum(map(len, texts)))
            return encode(texts)

    monkeypatch.setattr(ours, "_tokenizer", Watched())
    text = "some words of a description " * 40_000
    assert ours([text])[0].tolist() == WHOLE.encode(text).ids
    assert sum(read) <= 2048


FULL = Tokenizer.from_str(FILE.decode())
FULL.no_padding()
FULL.no_truncation()
CUT = {
    most: (TextTokenizer(FILE, most, both_ends=True), TextTokenizer(FILE, most))
    for most in (4, 9, 40)
}


@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(list(CUT)))
def test_of_a_long_request_both_ends_are_read(text: str, most: int) -> None:
    ours, plain = CUT[most]
    [ids], [as_before], whole = ours([text]), plain([text]), WHOLE.encode(text).ids
    if len(whole) <= most:
        assert ids.tolist() == as_before.tolist()
    assert len(ids) <= most
    start = (most - 2) // 2
    assert ids[: 1 + start].tolist() == as_before[: 1 + start].tolist()
    full, half = FULL.encode(text, add_special_tokens=False), (most - 2) // 2
    if len(full.ids) > most - 2:
        words = full.word_ids
        begin = next((at for at in range(-half, 0) if words[at] != words[at - 1]), None)
        if begin is not None:
            head = full.ids[: most - 2 - half]
            assert ids[1:-1].tolist() == head + full.ids[begin:], "whole words to the very end"


@pytest.mark.parametrize("most", range(10, 22))
def test_the_last_word_of_a_long_request_stays_whole(most: int) -> None:
    text = " ".join(["Donaudampfschiff", "Xylophonist", "kubectl"] * 9)
    [ids] = TextTokenizer(FILE, most, both_ends=True)([text])
    assert WHOLE.decode(ids.tolist()).endswith(" kubectl")
    assert len(ids) <= most


def test_the_middle_of_a_long_request_is_what_goes() -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    ours = TextTokenizer(FILE, 8, both_ends=True)
    assert WHOLE.decode(ours([" ".join(words)])[0].tolist()) == "one two three eight nine ten"
    assert WHOLE.decode(ours([" ".join([*words * 9_000, "end"])])[0].tolist()) == (
        "one two three nine ten end"
    )
    read = ours.measure_reading([f"read the file {' '.join(HAN[:300])} and send it"])
    assert read.tolist() == [1.0], "what goes is not held against it"


def test_texts_keep_their_order_beyond_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_SLICE", 3)
    texts = [f"text {number}" for number in range(10)]
    found = TextTokenizer(FILE, 128)(texts)
    for text, ids in zip(texts, found, strict=True):
        assert np.array_equal(ids, WHOLE.encode(text).ids)


HAN = [chr(0x4E00 + at) for at in range(1_200)]
ENGLISH = ["read", "the", "file", "of", "light"]
KNOWN = TextTokenizer(FILE, 128)


def make_unigram(pieces: list[str]) -> Tokenizer:
    """As SentencePiece has it: `\u2581` before a word, one unknown piece for all in a row."""
    scored = [("<unk>", 0.0), *((piece, -float(len(pieces))) for piece in pieces)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tokenizer


def make_wordpiece(letters: list[str]) -> Tokenizer:
    """As BERT has it: each Han character is a word."""
    vocab = {piece: at for at, piece in enumerate(["[UNK]", *ENGLISH, *letters])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
    )
    return tokenizer


def make_byte_level(merges: list[tuple[str, str]]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({piece: at for at, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("Turn on the light in the kitchen", 0.95, 1), ("Schalte das Licht in der Küche an", 0.9, 1),
     ("включи свет на кухне", 0, 0), ("打开厨房的灯", 0, 0), ("キッチンの電気をつけて", 0, 0),
     ("부엌 불을 켜", 0, 0), ("افتح الضوء في المطبخ", 0, 0.2), ("file 打开灯光", 0.5, 0.5),
     ("12 🙂 !?", 1, 1), ("", 1, 1), ("\ud800", 1, 1)],
)  # fmt: skip
def test_minilm_reads_latin_letters_alone(text: str, low: float, high: float) -> None:
    assert low <= KNOWN.measure_reading([text])[0] <= high


def test_whole_words_of_another_script_are_read() -> None:
    tokenizer_coverage = TokenizerCoverage(
        make_unigram(["\u2581", "\u2581the", "天气", "今天", "включи", "l", "i", "g"])
    )
    assert tokenizer_coverage.measure(["天气今天", "the включи"]).tolist() == [1, 1]
    # What is spelt out or unknown is not, however many letters the unknown piece has.
    assert tokenizer_coverage.measure(["lig", "дождь", "天气дождь"]).tolist() == pytest.approx(
        [0, 0, 2 / 7]
    )


@pytest.mark.parametrize(("count", "share"), [(1_200, 1.0), (999, 0.0)])
def test_a_letter_is_a_word_where_a_vocabulary_has_a_thousand_of_its_script(
    count: int, share: float
) -> None:
    tokenizer_coverage = TokenizerCoverage(make_wordpiece(HAN[:count]))
    assert tokenizer_coverage.measure([HAN[3] + HAN[7]])[0] == share
    assert (
        tokenizer_coverage.measure([chr(0x9FA5)])[0] == 0
    )  # of the script, and not in the vocabulary
    assert tokenizer_coverage.measure([f"read the file {chr(0x9FA5)}"])[0] == pytest.approx(11 / 12)


def test_bytes_of_a_letter_are_no_reading_of_it() -> None:
    tokenizer_coverage = TokenizerCoverage(make_byte_level([("l", "i"), ("li", "t")]))
    assert tokenizer_coverage.measure(["lit", "天气", "lit 天"]).tolist() == pytest.approx(
        [1, 0, 3 / 4]
    )


@given(st.lists(PIECES, max_size=30).map("".join), st.text("дж天ば", min_size=1, max_size=20))
def test_letters_that_are_not_read_never_raise_the_share(text: str, odd: str) -> None:
    plain, stuffed = KNOWN.measure_reading([f"file {text}", f"{odd} file {text}"])
    assert 0 <= stuffed <= plain + 0.02  # the cut at the limit moves with what stands before


def test_no_more_is_measured_than_is_encoded() -> None:
    cut = TextTokenizer(FILE, 8)
    assert cut.measure_reading([f"turn on the light now and here again {'天' * 500}"])[0] == 1


def test_a_tokenizer_without_an_unknown_token_is_taken_as_it_is() -> None:
    tokenizer_coverage = TokenizerCoverage(
        Tokenizer(
            models.BPE({"t": 0, "h": 1, "e": 2, "th": 3, "the": 4}, [("t", "h"), ("th", "e")])
        )
    )
    assert tokenizer_coverage.measure(["the", "thet", "t"]).tolist() == [1, 0.75, 0]
