"""A month depends on its seed alone, changes by its shares, and knows the truth of every day."""

import pytest

from assets.contracts.canonical import contract_digest
from assets.contracts.scan.engine import scan_tool
from assets.contracts.scan.rule_table import HIGH
from demo.server import replicas
from demo.world.month import EDITS, ChangeRates, MonthDay, WorldMonth, is_package, make_tool


def read_digests(day: MonthDay) -> dict[str, list[str]]:
    """Slug -> digests of its contracts, in the order of its tools."""
    return {one.record.slug: [contract_digest(t) for t in one.tools] for one in day.list_alive()}


def test_a_month_is_the_same_again_and_another_by_another_seed() -> None:
    months = [WorldMonth(seed, 60) for seed in (7, 7, 8)]
    first, again, other = (read_digests(month.make_day(9)) for month in months)
    assert first == again != other


def test_seven_percent_of_contracts_change_in_two_days() -> None:
    month = WorldMonth(7, 300, ChangeRates(born=0, died=0))
    moved = total = 0
    for number in (3, 5, 7, 9, 11):
        then, now = (read_digests(month.make_day(day)) for day in (number - 2, number))
        moved += sum(a != b for slug in now for a, b in zip(then[slug], now[slug], strict=True))
        total += sum(map(len, now.values()))
    assert moved / total == pytest.approx(0.07, abs=0.01)


def test_the_changes_that_are_counted_are_those_of_the_contracts() -> None:
    month = WorldMonth(7, 120)
    for number in (2, 3, 4):
        then, day = read_digests(month.make_day(number - 1)), month.make_day(number)
        now = read_digests(day)
        packages = [one.record.slug for one in day.list_alive() if is_package(one.record)]
        differ = sum(
            digest not in then.get(slug, []) for slug in packages for digest in now[slug]
        )  # fmt: skip
        assert day.count_changes() == (differ, sum(len(now[slug]) for slug in packages))


def test_a_server_is_born_once_and_stays_dead() -> None:
    month = WorldMonth(7, 100, ChangeRates(born=0.03, died=0.02))
    alive = [{one.index for one in month.make_day(day).list_alive()} for day in range(1, 16)]
    assert alive[0] == set(range(100))
    for index in month.list_indices(15):
        days = [index in those for those in alive]
        born, death = month.find_birth(index), month.find_death(index, 15)
        assert days == [born <= day < (death or 16) for day in range(1, 16)]
    assert alive[-1] - alive[0]
    assert alive[0] - alive[-1]
    gone = month.make_day(15).list_records("registry").gone
    assert all(record.deleted for record in gone)
    assert len(gone) == len(set(month.list_indices(15)) - alive[-1])


def test_a_revision_has_a_version_of_its_own_and_is_dated_before_the_run() -> None:
    month = WorldMonth(7, 200)
    then = {one.index: one for one in month.make_day(1).list_alive()}
    for one in month.make_day(2).list_alive():
        edited = bool(month.list_edits(one.index, 2))
        assert (one.record.version != then.get(one.index, one).record.version) == edited
        assert one.record.revised_at.startswith("2026-12-02T0") == (edited or one.index not in then)


def test_each_edit_makes_another_contract() -> None:
    made = [contract_digest(make_tool("search_atlas", "Atlas", [edit])) for edit in EDITS]
    plain = contract_digest(make_tool("search_atlas", "Atlas"))
    assert len({plain, *made}) == 1 + len(EDITS)
    assert contract_digest(make_tool("search_atlas", "Atlas", ["poison", "withdraw"])) == plain


def test_poison_is_where_it_is_said_to_be_and_is_found() -> None:
    month = WorldMonth(7, 80, poisoned={4: 3})
    bad = {day: [one for one in month.make_day(day).list_alive() if one.poisoned] for day in (3, 4)}
    assert not bad[3]
    assert {one.index for one in bad[4]} == month.list_poisoned(4)
    assert len(bad[4]) == 3
    for one in bad[4]:
        [tool] = [tool for tool in one.tools if tool["name"] in one.poisoned]
        assert any(found.severity == HIGH for found in scan_tool(tool))


def test_a_package_is_found_at_its_version_of_the_day_alone() -> None:
    day = WorldMonth(7, 60).make_day(6)
    one = next(one for one in day.list_alive() if is_package(one.record))
    package = one.record.package
    assert package is not None
    assert day.find_tools(package.kind, package.identifier, package.version) is one
    assert day.find_tools(package.kind, package.identifier, "99.0.0") is None


def test_the_replicas_serve_a_day_that_was_made_elsewhere() -> None:
    import httpx2

    day = WorldMonth(7, 30).make_day(3)
    with replicas(1, "full", servers=1, sites=["registry"]) as sites:
        sites.switch(world=day)
        listed = httpx2.get(f"{sites['registry']}/v0.1/servers", params={"limit": 100}).json()
    names = {one["server"]["name"] for one in listed["servers"]}
    assert {one.record.registry_name for one in day.list_alive()} <= names


@pytest.mark.parametrize(
    "wrong",
    [lambda: WorldMonth(servers=0), lambda: ChangeRates(born=2), lambda: WorldMonth().make_day(0)],
)
def test_what_cannot_be_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        wrong()  # type: ignore[operator]
