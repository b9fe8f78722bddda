"""A raised canonical form, night after night through the real doors: nothing is bought again."""

from collections.abc import Iterator

import pytest

from assets.contracts.canonical import CANON_VERSION
from assets.contracts.history import aliases
from assets.contracts.history.aliases import Form, read_aliases
from assets.contracts.history.snapshot import CHANGES, SNAPSHOTS
from assets.contracts.quarantine.decisions import Decision, decide
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS
from assets.vectors.index import VECTORS
from tests.contracts.history.test_aliases import shouted
from tests.contracts.world import World, honest, poisoned
from training.drift.drift import drift_state
from training.releases.index_source import published_source
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

BAD = ("npm:photo", "find_photo")


@pytest.fixture
def world(warehouse: Warehouse) -> Iterator[World]:
    made = World(warehouse)
    servers = honest()
    servers["npm:photo"][0] = poisoned(servers["npm:photo"][0])
    made.deploy(servers)
    made.night()
    made.fan_in()
    yield made
    warehouse.ledger.close()


def raise_the_form(patch: pytest.MonkeyPatch) -> None:
    """From now on every contract is written otherwise and so has another name."""
    patch.setattr(aliases, "CURRENT", Form(CANON_VERSION + 1, shouted))
    for module in ("snapshot", "diff"):
        patch.setattr(f"assets.contracts.{module}.contract", shouted)


def test_a_night_after_a_new_form_buys_nothing_and_moves_nothing_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {row["contract_digest"] for row in world.rows(SNAPSHOTS)}
    made = {spec.name: world.rows(spec) for spec in (PAIRS, JUDGEMENTS, VECTORS, TRAINING_SET)}
    effects, texts = world.warehouse.ledger.counts(), len(world.embedder.embedded)
    raise_the_form(monkeypatch)
    told = world.night()
    world.fan_in()
    assert told["snapshots"]["renamed_by_a_new_form"] == len(names)
    assert not names & {row["contract_digest"] for row in world.rows(SNAPSHOTS)}
    assert world.warehouse.ledger.counts() == effects
    assert len(world.embedder.embedded) == texts
    for spec in (PAIRS, JUDGEMENTS, VECTORS, TRAINING_SET):
        assert world.rows(spec) == made[spec.name], spec.name
    assert world.night()["snapshots"]["renamed_by_a_new_form"] == 0


def test_a_new_form_is_no_change_and_no_rug_pull_and_holds_what_was_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_the_form(monkeypatch)
    world.night()
    world.fan_in()
    assert world.rows(CHANGES) == []
    assert {found[:2] for found in world.found()} == {BAD}
    assert "rug_pull" not in {rule for _, _, rule in world.found()}
    assert BAD not in world.downstream()["pairs"]


def test_a_released_contract_stays_released_under_its_new_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in {rule for _, _, rule in world.found()}:
        name = world.digest(*BAD)
        decide(world.warehouse.home, Decision(name, rule, "released", "ann", "2026-01-02", "ok"))
    world.night()
    assert BAD in world.downstream()["pairs"]
    effects = world.warehouse.ledger.counts()
    raise_the_form(monkeypatch)
    world.night()
    assert BAD in world.downstream()["pairs"]
    assert world.warehouse.ledger.counts() == effects


def test_the_index_shows_the_new_name_and_the_text_that_was_bought(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = published_source(world.warehouse)[0].rows
    raise_the_form(monkeypatch)
    world.night()
    after = published_source(world.warehouse)[0].rows
    current = read_aliases(world.warehouse.tables).current
    assert [row["contract"] for row in after] == [row["contract"] for row in before]
    assert [row["contract_digest"] for row in after] == [
        current(row["contract_digest"]) for row in before
    ]


def test_a_new_form_is_no_drift(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    head = world.warehouse.tables.head(TRAINING_SET.name)
    assert head
    monkeypatch.setattr("training.drift.drift.last_trained_set", lambda *_: head.digest)
    raise_the_form(monkeypatch)
    world.night()
    state = drift_state(world.warehouse)
    assert (state.known, state.changed, state.new, state.gone) == (18, 0, 0, 0)
