from random import Random

from benchmarks.outcomes.noise.paraphrase import (
    paraphrase_contract,
    paraphrase_name,
    paraphrase_text,
)
from tests.benchmarks.outcomes.noise.stages import make_contract


def test_a_name_gets_other_words_and_loses_the_product() -> None:
    assert paraphrase_name("fast_read_file", Random(1)).endswith("_document")
    assert "fast" not in paraphrase_name("fast_read_file", Random(1))


def test_only_the_first_sentence_is_said_again() -> None:
    text = paraphrase_text("read_file", "Read a file. DEPRECATED: use another.", Random(1))
    assert "document" in text
    assert "DEPRECATED" not in text


def test_a_description_without_latin_words_is_told_by_the_name() -> None:
    assert "document" in paraphrase_text("read_file", "読み込み", Random(1))


def test_parameters_keep_their_names_and_lose_their_words() -> None:
    made = paraphrase_contract(make_contract("read_file", "path"), "load", Random(1))
    assert made["name"] == "load"
    assert made["inputSchema"]["properties"] == {"path": {"type": "string"}}
    assert made["inputSchema"]["required"] == ["path"]
