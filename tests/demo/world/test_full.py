"""Full worlds: records that depend on their number alone, days that differ by exact shares."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.world.full import make_full_world, make_record
from tests.demo.walk import count_differences
from tests.support.examples import examples

NUMBERS = st.integers(min_value=0, max_value=99_999)


@given(st.integers(0, 300), st.integers(1, 300))
@examples(30)
def test_a_record_does_not_depend_on_how_many_there_are(index: int, more: int) -> None:
    here = make_full_world(servers=index + 1).list_records("registry")
    there = make_full_world(servers=index + 1 + more).list_records("registry")
    assert here[index] == there[index] == make_record(index)
    assert here.find_position(here[index].slug) == index
    assert here.find_position(f"other-{index}") is None


@given(NUMBERS)
@examples(60)
def test_a_record_is_edited_before_the_second_day(index: int) -> None:
    record = make_record(index)
    assert record.slug.endswith(f"-{index}")
    assert record.created_at <= record.revised_at < "2026-11-21"


@given(st.integers(1, 400))
@settings(max_examples=20, deadline=None)
def test_the_second_day_differs_as_it_says(count: int) -> None:
    first = {record.slug: record for record in make_full_world(1, count).list_records("mcpso")}
    world = make_full_world(2, count)
    second = {record.slug: record for record in world.list_records("mcpso")}
    differences = {
        "new": len(second.keys() - first.keys()),
        "changed": sum(first[slug] != second[slug] for slug in first.keys() & second.keys()),
        "gone": len(first.keys() - second.keys()),
    }
    assert differences == count_differences(world)


def test_a_changed_record_keeps_its_older_version() -> None:
    records = make_full_world(2, 200).list_records("registry")
    assert len(records.older) == 2
    for slug, versions in records.older.items():
        now = records.find(slug)
        assert now
        assert [version.version for version in versions] != [now.version]
        assert now.revised_at > versions[0].revised_at


def test_marketplaces_tell_the_same_servers_in_other_words() -> None:
    world = make_full_world(servers=300)
    registry, glama = world.list_records("registry"), world.list_records("glama")
    pairs = list(zip(registry, glama, strict=True))
    assert all(one.package == other.package for one, other in pairs)
    spelt = [one.repository != other.repository for one, other in pairs]
    assert 0 < sum(spelt) < 150
    kinds = {item.package.kind for item in registry if item.package}
    assert kinds == {"npm", "pypi", "oci", "mcpb"}
    assert any(item.remote for item in registry)


@pytest.mark.parametrize("options", [{"servers": 0}, {"day": 3}])
def test_what_cannot_be_made_is_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r"expected|does not exist"):
        make_full_world(**options)
