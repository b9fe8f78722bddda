from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.faults import FAULTS
from benchmarks.outcomes.noise.variants import (
    CHANGED_SHARE,
    change_endpoints,
    make_newcomers,
    make_variants,
)
from tests.benchmarks.outcomes.noise.stages import make_endpoint

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
