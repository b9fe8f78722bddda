"""Models that pool otherwise than MiniLM or want words before a question; how texts are cut."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from assets.vectors.encoders import hub, session, weights
from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import BadEmbedder, Embedder, Prompts, embed_queries
from assets.vectors.encoders.saved import EncoderBroken, open_encoder, save_encoder
from assets.vectors.encoders.session import TextTokenizer, TokenizerCoverage
from tests.support.cases import cases
from tests.vectors import small_models
from tests.vectors.embeddings_endpoint import embeddings_endpoint

TEXTS = ["send an email to the whole team", "the weather", "half \ud800", "a " * 200]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def open_sentence(folder: Path, prompts: Prompts | None = None) -> Embedder:
    return open_embedder(f"sentence-transformers:{folder}", prompts=prompts)


@cases("make", small_models.make_modern_bert, small_models.make_qwen3, small_models.make_bert)
def test_vectors_are_those_of_sentence_transformers_itself(make, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = make(tmp_path)
    ours, theirs = open_sentence(folder), SentenceTransformer(str(folder))
    whole = [text.replace("\ud800", "?") for text in TEXTS]
    documents = theirs.encode_document(whole, normalize_embeddings=True)
    asked = theirs.encode_query(whole, normalize_embeddings=True)
    assert np.abs(ours.embed(TEXTS) - documents).max() < 1e-5
    assert np.abs(embed_queries(ours, TEXTS) - asked).max() < 1e-5
    assert ours.dim == 32
    assert np.abs(np.linalg.norm(ours.embed(TEXTS), axis=1) - 1).max() < 1e-5


def test_the_first_and_the_last_token_are_pooled_where_the_model_says_so(tmp_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    for name, make, place in (
        ("first", small_models.make_modern_bert, 0),
        ("last", small_models.make_qwen3, -1),
    ):
        folder = make(tmp_path / name)
        ids = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
        fed = {name: ids[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            states = AutoModel.from_pretrained(folder).eval()(**fed)
        state = states.last_hidden_state[0, place].numpy()
        found = open_sentence(folder).embed(TEXTS[:2])[0]  # the other text is padded beside it
        assert np.abs(found - state / np.linalg.norm(state)).max() < 1e-5


def test_the_users_prompts_stand_in_place_of_the_models(tmp_path):
    folder = small_models.make_qwen3(tmp_path / "model")
    plain, own = open_sentence(folder), open_sentence(folder, Prompts("ask: ", "tool: "))
    assert own.id != plain.id
    assert np.abs(embed_queries(own, ["a"]) - plain.embed(["ask: a"])).max() < 1e-5
    assert np.abs(own.embed(["a"]) - plain.embed(["tool: a"])).max() < 1e-5
    save_encoder(own, tmp_path)
    hub.allow_embedder(f"sentence-transformers:{folder}")
    again = open_encoder(tmp_path, own.id, threads=1)
    assert np.abs(embed_queries(again, ["a"]) - embed_queries(own, ["a"])).max() < 1e-6


def test_prompts_of_an_endpoint_are_saved_with_it(tmp_path):
    prompts = Prompts("query: ", "passage: ")
    with embeddings_endpoint() as endpoint:
        spec = f"openai:m@{endpoint.url}"
        plain, embedder = open_embedder(spec), open_embedder(spec, prompts=prompts)
        assert embedder.id != plain.id
        save_encoder(embedder, tmp_path)
        hub.allow_embedder(spec)
        again = open_encoder(tmp_path, embedder.id)
        for item in (embedder, again):
            assert np.abs(item.embed(["a"]) - plain.embed(["passage: a"])).max() < 1e-6
            assert np.abs(embed_queries(item, ["a"]) - plain.embed(["query: a"])).max() < 1e-6


def test_prompts_that_are_no_texts_or_of_minilm_are_a_broken_encoder(tmp_path):
    embedder = open_embedder("minilm")
    card = save_encoder(embedder, tmp_path) / "encoder.json"
    held = json.loads(card.read_text())
    for prompts in ({"query": 7}, ["query"], {"other": "a"}, {"query": "query: "}):
        small_models.write(card, {**held, "prompts": prompts})
        with pytest.raises(EncoderBroken, match="prompts"):
            open_encoder(tmp_path, embedder.id)
    with pytest.raises(BadEmbedder, match="minilm takes no query_prompt"):
        open_embedder("minilm", prompts=Prompts("query: "))
    with pytest.raises(BadEmbedder, match="at most 2,000"):
        Prompts("x" * 2_001)


@cases("body", "[]", "{", "7", None)
def test_a_model_that_does_not_say_how_it_pools_is_refused(tmp_path, body):
    modules = small_models.make_bert(tmp_path) / "modules.json"
    modules.unlink() if body is None else modules.write_text(body)
    with pytest.raises(BadEmbedder, match=r"modules\.json" if body else r"has no modules\.json"):
        open_sentence(tmp_path)


def test_a_layer_whose_weights_are_a_pickle_is_refused_unread(tmp_path, monkeypatch):
    import torch

    dense = small_models.add_dense(small_models.make_bert(tmp_path / "model"))
    assert open_sentence(dense.parent).dim == 12
    (dense / "model.safetensors").rename(dense / "pytorch_model.bin")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("a pickle was read"))
    with pytest.raises(BadEmbedder, match=r"dense/pytorch_model\.bin: a pickle.*as safetensors"):
        open_sentence(dense.parent)


@cases("lost", "encoder.layer.1.output.dense.weight", "embeddings.word_embeddings.weight")
def test_weights_that_a_file_lacks_are_not_made_up(lost, tmp_path):
    folder = small_models.make_bert(tmp_path / "model")
    small_models.edit_tensors(folder / "model.safetensors", lambda held: held.pop(lost))
    with pytest.raises(BadEmbedder, match=rf"weights have no {lost} \(1 missing\)"):
        open_sentence(folder)


def test_a_model_without_the_pooler_that_it_does_not_use_keeps_its_id(tmp_path):
    folder = small_models.make_bert(tmp_path / "model")
    pooler = [f"pooler.dense.{end}" for end in ("weight", "bias")]
    small_models.edit_tensors(
        folder / "model.safetensors", lambda held: [held.pop(name) for name in pooler]
    )
    assert open_sentence(folder).id == open_sentence(folder).id


def test_a_hub_model_is_read_at_its_commit_and_named_by_its_weights(tmp_path, monkeypatch):
    folder, asked = small_models.make_bert(tmp_path / "snapshot"), []

    def snapshot_download(name: str, **options: object) -> str:
        asked.append((name, options["revision"]))
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    embedder = open_embedder(f"sentence-transformers:owner/bert@{COMMIT}")
    assert asked == [("owner/bert", COMMIT)]
    assert embedder.id.startswith("sentence-transformers:owner/bert/32@")
    save_encoder(embedder, tmp_path)
    with pytest.raises(BadEmbedder, match="which you did not name"):
        open_encoder(tmp_path, embedder.id)
    hub.allow_embedder(f"sentence-transformers:owner/bert@{COMMIT}")
    assert open_encoder(tmp_path, embedder.id, threads=1).id == embedder.id


@pytest.mark.live
def test_a_small_model_of_the_hub_embeds_at_its_commit():
    if os.environ["HF_HUB_OFFLINE"] != "0":
        pytest.skip("fetches 471 MB (multilingual E5 small) where HF_HUB_OFFLINE=0 allows it")
    name = "intfloat/multilingual-e5-small@fd1525a9fd15316a2d503bf26ab031a61d056e98"
    assert (hub.fetch_model(name, ("*.json",)) / "modules.json").is_file()
    prompts = Prompts("query: ", "passage: ")
    embedder = open_embedder(f"sentence-transformers:{name}", prompts=prompts)
    french, chinese = embed_queries(embedder, ["Quel temps fait-il à Paris ?", "巴黎天气"])
    other = embed_queries(embedder, ["Envoie un courriel à toute l'équipe"])[0]
    assert french @ chinese > french @ other


FILE = (weights.find_base_path() / "tokenizer.json").read_bytes()
WHOLE = Tokenizer.from_str(FILE.decode())
WHOLE.no_padding()
WHOLE.enable_truncation(128)
PIECES = st.sampled_from(
    ["word ", "[SEP]", "[", "SEP]", "é", "e\u0301", "\u0301", "，", "你好", " ", "\n", "\x1c",
     "\u00a0", "\u2028", "a" * 90, "aB3", "x-y_z", "###", "</tool>", "🙂", "\u200d", "İ", "ß",
     "1.5"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=120).map("".join), st.integers(1, 60))
def test_the_ids_are_those_of_the_whole_text(text, part):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_PART", part)
        found = TextTokenizer(FILE, 128)([text])
    assert found[0].tolist() == WHOLE.encode(text).ids


def test_a_long_text_is_not_read_to_its_end_and_texts_keep_their_order_beyond_a_slice(monkeypatch):
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
    monkeypatch.setattr(session, "_SLICE", 3)
    texts = [f"text {number}" for number in range(10)]
    found = TextTokenizer(FILE, 128)(texts)
    for text, ids in zip(texts, found, strict=True):
        assert np.array_equal(ids, WHOLE.encode(text).ids)


FULL = Tokenizer.from_str(FILE.decode())
FULL.no_padding()
FULL.no_truncation()
CUT = {n: (TextTokenizer(FILE, n, both_ends=True), TextTokenizer(FILE, n)) for n in (4, 9, 40)}


@given(st.lists(PIECES, max_size=60).map("".join), st.sampled_from(list(CUT)))
def test_of_a_long_request_both_ends_are_read(text, most):
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
def test_the_last_word_of_a_long_request_stays_whole(most):
    text = " ".join(["Donaudampfschiff", "Xylophonist", "kubectl"] * 9)
    [ids] = TextTokenizer(FILE, most, both_ends=True)([text])
    assert WHOLE.decode(ids.tolist()).endswith(" kubectl")
    assert len(ids) <= most


def test_the_middle_of_a_long_request_is_what_goes():
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    ours = TextTokenizer(FILE, 8, both_ends=True)
    assert WHOLE.decode(ours([" ".join(words)])[0].tolist()) == "one two three eight nine ten"
    long = " ".join([*words * 9_000, "end"])
    assert WHOLE.decode(ours([long])[0].tolist()) == "one two three nine ten end"
    read = ours.measure_reading([f"read the file {' '.join(HAN[:300])} and send it"])
    assert read.tolist() == [1.0], "what goes is not held against it"


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
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def make_byte_level(merges: list[tuple[str, str]]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({piece: at for at, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@cases(
    "text, low, high",
("Turn on the light in the kitchen", 0.95, 1), ("Schalte das Licht in der Küche an", 0.9, 1),
     ("включи свет на кухне", 0, 0), ("打开厨房的灯", 0, 0), ("キッチンの電気をつけて", 0, 0),
     ("부엌 불을 켜", 0, 0), ("افتح الضوء في المطبخ", 0, 0.2), ("file 打开灯光", 0.5, 0.5),
     ("12 🙂 !?", 1, 1), ("", 1, 1), ("\ud800", 1, 1),
)  # fmt: skip
def test_minilm_reads_latin_letters_alone(text, low, high):
    assert low <= KNOWN.measure_reading([text])[0] <= high


ODD_HAN = chr(0x9FA5)  # of the script, and in no vocabulary here
LETTERS, MERGES = {"t": 0, "h": 1, "e": 2, "th": 3, "the": 4}, [("t", "h"), ("th", "e")]


@cases(
    "tokenizer, shares",
    (  # Whole words of another script; not what is spelt out or unknown, however long it is.
        make_unigram(["\u2581", "\u2581the", "天气", "今天", "включи", "l", "i", "g"]),
        {"天气今天": 1, "the включи": 1, "lig": 0, "дождь": 0, "天气дождь": 2 / 7},
    ),
    *(  # A letter is a word where a vocabulary has a thousand of its script.
        (
            make_wordpiece(HAN[:count]),
            {HAN[3] + HAN[7]: share, ODD_HAN: 0, f"read the file {ODD_HAN}": 11 / 12},
        )
        for count, share in ((1_200, 1), (999, 0))
    ),
    # Bytes of a letter are no reading of it.
    (make_byte_level([("l", "i"), ("li", "t")]), {"lit": 1, "天气": 0, "lit 天": 3 / 4}),
    # One without an unknown token is taken as it is.
    (Tokenizer(models.BPE(LETTERS, MERGES)), {"the": 1, "thet": 0.75, "t": 0}),
    ids=["unigram", "wordpiece", "few letters", "bytes", "no unknown token"],
)
def test_a_tokenizer_reads_the_letters_of_its_words(tokenizer, shares):
    found = TokenizerCoverage(tokenizer).measure(list(shares))
    assert found.tolist() == pytest.approx(list(shares.values()))


@given(st.lists(PIECES, max_size=30).map("".join), st.text("дж天ば", min_size=1, max_size=20))
def test_letters_that_are_not_read_never_raise_the_share(text, odd):
    plain, stuffed = KNOWN.measure_reading([f"file {text}", f"{odd} file {text}"])
    assert 0 <= stuffed <= plain + 0.02  # the cut at the limit moves with what stands before


def test_no_more_is_measured_than_is_encoded():
    cut = TextTokenizer(FILE, 8)
    assert cut.measure_reading([f"turn on the light now and here again {'天' * 500}"])[0] == 1
