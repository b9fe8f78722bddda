"""."""

from random import Random

import pytest

from benchmarks.outcomes.noise.endpoints import (
    AFTER,
    BEFORE,
    list_real,
    load_sources,
    rename_arguments,
)
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, draw_tasks, load_intents
from benchmarks.outcomes.noise.proxy import FAULTS
from benchmarks.outcomes.noise.variants import (
    CHANGED_SHARE,
    change_endpoints,
    make_newcomers,
    make_variants,
    paraphrase_contract,
    paraphrase_name,
    paraphrase_text,
)
from tests.benchmarks.outcomes.noise.stages import SOURCE, make_contract, make_endpoint

REAL = [make_endpoint(f"srv-{at}", "read_text_file") for at in range(20)]


def test_each_fault_is_as_frequent_and_a_fifth_has_none() -> None:
    made = make_variants(REAL, 75, 1)
    faults = [one.faults[BEFORE] for one in made]
    assert {name: faults.count(name) for name in FAULTS} == dict.fromkeys(FAULTS, 10)
    assert faults.count(None) == 15
    assert len({one.id for one in made}) == 75
    assert not any(one.direct for one in made)


def test_variants_are_a_function_of_their_seed() -> None:
    assert make_variants(REAL, 10, 1) == make_variants(REAL, 10, 1) != make_variants(REAL, 10, 2)


def test_a_fifth_changes_and_newcomers_stay() -> None:
    pool = [*REAL, *make_variants(REAL, 80, 1), *make_newcomers(REAL, 5, 1)]
    made = change_endpoints(pool, 1)
    changed = [one for one in made if one.changes]
    assert len(changed) == round(100 * CHANGED_SHARE)
    assert all((one.faults[BEFORE] is None) != (one.faults[AFTER] is None) for one in changed)
    assert any(one.renames for one in changed)
    assert not all(one.renames for one in changed)
    assert not any(one.newcomer for one in changed)


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


INTENTS = [one for one in load_intents() if one.world in ("office-folder", "team-memory")]


def test_every_intent_says_what_is_checked_and_has_wordings_of_its_own_for_held_out_tasks() -> None:
    worlds = {source.world for source in load_sources()}
    for intent in load_intents():
        assert intent.changes or intent.answer, intent.name
        assert intent.requests, intent.name
        assert intent.held_out, intent.name
        assert not {*intent.requests} & {*intent.held_out}, intent.name
        assert intent.world in worlds, intent.name


def test_tasks_are_different_and_the_same_again_by_their_seeds() -> None:
    train = draw_tasks(INTENTS, 60, TRAIN, (1, 2))
    assert train == draw_tasks(INTENTS, 60, TRAIN, (1, 2))
    assert len({one.id for one in train}) == 60
    held = draw_tasks(INTENTS, 30, HELD_OUT, (3,))
    assert not {one.query for one in held} & {one.query for one in train}


def test_more_tasks_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="add seeds"):
        draw_tasks([one for one in INTENTS if one.name == "allowed-folders"], 50, TRAIN, (1,))


def test_there_are_sixty_real_endpoints_or_more() -> None:
    assert sum(len(source.tools) for source in load_sources()) >= 60


def test_a_tool_that_is_not_listed_is_no_endpoint() -> None:
    found = list_real({SOURCE: {"read_file": make_contract("read_file", "path")}})
    assert [(one.base, one.direct) for one in found] == [("read_file", True)]
    assert SOURCE not in found[0].id


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ({"paths": ["/a", "/b"], "path": "/c"}, {"paths": ["/a", "/b"]}),
        ({"path": "/c"}, {"paths": ["/c"]}),
        ({"name": "c"}, None),
    ],
)
def test_the_first_form_that_can_be_filled_is_the_call(
    slots: dict[str, object], expected: object
) -> None:
    assert make_endpoint("s", "read_multiple_files").write_call(slots, BEFORE) == expected


def test_a_renamed_argument_is_sent_by_its_new_name_and_reaches_the_tool_by_its_old() -> None:
    changed = rename_arguments(make_endpoint("s"), {"path": "ref"}, "now otherwise")
    assert changed.write_call({"path": "/c"}, BEFORE) == {"path": "/c"}
    sent = changed.write_call({"path": "/c"}, AFTER)
    assert sent == {"ref": "/c"}
    assert sent is not None
    assert changed.translate_call(sent) == {"path": "/c"}
    assert changed.contracts[AFTER]["inputSchema"]["required"] == ["ref"]
    assert changed.digest_contract(BEFORE) != changed.digest_contract(AFTER)
