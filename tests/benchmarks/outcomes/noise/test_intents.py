import pytest

from benchmarks.outcomes.noise.endpoints import load_sources
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, draw_tasks, load_intents

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
