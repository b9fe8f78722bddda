"""One row per server: what is shown, what a run confirmed; and the asset, through Dagster."""

import json
from typing import Any

import dagster as dg
from hypothesis import given
from hypothesis import strategies as st

from assets.catalogue import defs
from assets.catalogue.catalogue import (
    CATALOGUE,
    build_catalogue,
    map_same_servers,
    read_same_servers,
)
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from tests.catalogue.servers import listing
from warehouse.store import Warehouse

DAY = 86_400.0
ONE = listing("a", npm="@example/notes", repository="https://github.com/example/notes")
OTHER = listing("b", "glama", repository="https://github.com/example/notes", name="Notes app")
COPY = listing("c", "mcpso", npm="@example/notes", version="0.9.0", name="notes-copy")


def tools(marketplace: str, server: str, *digests: str) -> list[dict[str, Any]]:
    return [
        {"marketplace": marketplace, "server_id": server, "tool": f"t{i}", "contract_digest": text}
        for i, text in enumerate(digests)
    ]


def rows(*listings, snapshots=(), previous=(), day=0):
    catalogue = build_catalogue(listings, snapshots, previous, day * DAY)
    CATALOGUE.frame(catalogue)
    return catalogue


def only(*listings, **more) -> dict[str, Any]:
    [row] = rows(*listings, **more)
    return row


def test_a_row_says_who_lists_the_server_and_what_joined_each():
    row = only(ONE, OTHER, COPY)
    assert row["marketplaces"] == ["glama", "mcpso", "registry"]
    assert json.loads(row["listings"]) == [
        {"joined_by": "repository", "listing_id": "glama:b"},
        {"joined_by": "package", "listing_id": "mcpso:c"},
        {"joined_by": "package", "listing_id": "registry:a"},
    ]
    assert (row["joined_by"], row["identity"]) == ("repository", "package:npm:@example/notes")
    assert row["server_ids"] == ["npm:@example/notes"]
    assert only(ONE)["catalogue_id"] == row["catalogue_id"]
    own = listing("0", "private", npm="@example/notes", name="our notes", description="internal")
    row = only(own, ONE)
    assert (row["name"], row["description"]) == (ONE.name, ONE.description)


def test_equal_contracts_confirm_a_row_and_a_stronger_key_keeps_its_history():
    server = "npm:@example/notes"
    first, second = tools("registry", server, "c1", "c2"), tools("mcpso", server, "c1", "c2")
    assert only(ONE, COPY)["confirmed"] is None
    assert only(ONE, COPY, snapshots=first)["confirmed"] is None
    assert only(ONE, COPY, snapshots=[*first, *second])["confirmed"] is True
    assert only(ONE, COPY, snapshots=[*first, *second[:1]])["confirmed"] is False
    assert only(ONE, COPY, snapshots=first)["tools"] == 2
    weak = listing("a", name="Example Notes", runnable=False)
    first = rows(weak)
    strong = listing("a", name="Example Notes", npm="@example/notes")
    [row] = rows(strong, previous=first, day=3)
    assert row["catalogue_id"] != first[0]["catalogue_id"]
    assert row["first_seen"] == "1970-01-01"


def test_a_server_that_nobody_lists_is_gone_with_its_date_and_may_return():
    first = rows(ONE, COPY)
    second = rows(COPY, previous=first, day=1)
    assert json.loads(second[0]["gone_from"]) == [
        {"listing_id": "registry:a", "since": "1970-01-02"}
    ]
    assert second[0]["gone"] is None
    third = rows(previous=second, day=2)
    assert (third[0]["gone"], third[0]["marketplaces"]) == ("1970-01-03", [])
    dates = [item["since"] for item in json.loads(third[0]["gone_from"])]
    assert dates == ["1970-01-03", "1970-01-02"]
    assert rows(previous=third, day=3) == third
    [back] = rows(ONE, COPY, previous=third, day=4)
    assert (back["gone"], back["gone_from"], back["first_seen"]) == (None, "[]", "1970-01-01")


def test_the_same_world_is_the_same_version_and_has_figures_and_tables():
    first = rows(ONE, OTHER, COPY)
    second = rows(COPY, OTHER, ONE, previous=first, day=9)
    assert CATALOGUE.digest(CATALOGUE.frame(first)) == CATALOGUE.digest(CATALOGUE.frame(second))
    lost = listing("lost", npm="lost-server")
    first = rows(ONE, COPY, lost)
    second = rows(ONE, COPY, previous=first, day=1)
    figures = defs.compute_figures(second)
    for name in ("servers", "on_several_marketplaces", "servers_gone"):
        assert figures[name] == 1
    assert "| 1 | package |" in defs.render_tables(second)["joined"]
    assert defs.render_tables([])["joined"] == "none"


def test_ids_of_one_server_are_known_as_of_a_time_also_where_that_version_went(warehouse):
    tables = warehouse.tables
    for names in (["npm:a"], ["npm:a", "remote:a"]):
        row = {**only(ONE), "server_ids": names}
        head = tables.promote(tables.stage(CATALOGUE, CATALOGUE.frame([row])), "-", [])
    first, last = tables.history(CATALOGUE.name)
    assert read_same_servers(tables, first.at) == {"npm:a": {"npm:a"}}
    (tables.folder(CATALOGUE.name) / f"{first.digest}.parquet").unlink()
    both = {"npm:a", "remote:a"}
    assert head == last
    assert read_same_servers(tables, first.at) == {"npm:a": both, "remote:a": both}


def join(*servers: set[str], gone: tuple[set[str], ...] = ()) -> dict[str, frozenset[str]]:
    live = [{"server_ids": sorted(names), "gone": None} for names in servers]
    return map_same_servers(
        [*live, *({"server_ids": sorted(names), "gone": "2026-01-01"} for names in gone)]
    )


IDS = st.sets(st.sampled_from("abcdef"), max_size=3)


@given(st.lists(IDS, max_size=5), st.lists(IDS, max_size=3))
def test_being_one_server_holds_both_ways_and_goes_on(live, gone):
    same = join(*live, gone=tuple(gone))
    assert same.keys() == set().union(*live, *gone)
    assert all(
        name in names and same[other] == names for name, names in same.items() for other in names
    )


def test_an_id_of_several_rows_joins_none_of_them():
    same = join({"npm:y1", "npm:y2", "remote:gw"}, {"npm:y4", "remote:gw"})
    assert same["npm:y1"] == same["npm:y2"] == {"npm:y1", "npm:y2"}
    assert [same[name] for name in ("npm:y4", "remote:gw")] == [{"npm:y4"}, {"remote:gw"}]
    # A row that nobody lists parts no server that is listed.
    same = join({"npm:a", "remote:a"}, gone=({"npm:a", "npm:old", "npm:older"},))
    assert (same["npm:a"], same["npm:old"]) == ({"npm:a", "remote:a"}, {"npm:old", "npm:older"})


def hold(warehouse: Warehouse, marketplace: str, *listings: Listing) -> None:
    frame = LISTINGS.frame([make_row(item) for item in listings])
    warehouse.tables.promote(warehouse.tables.stage(LISTINGS, frame, marketplace), "run", [])


def run(warehouse: Warehouse) -> dict:
    resources = {"warehouse": dg.ResourceDefinition.hardcoded_resource(warehouse)}
    result = dg.materialize([defs.catalogue_asset], resources=resources)
    [event] = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def test_the_asset_publishes_once_and_then_only_what_changed(warehouse):
    assert run(warehouse)["dagster/row_count"] == 0
    hold(warehouse, "registry", ONE)
    hold(warehouse, "mcpso", COPY)
    first = run(warehouse)
    assert (first["dagster/row_count"], first["on_several_marketplaces"], first["new"]) == (1, 1, 1)
    again = run(warehouse)
    assert (again["version_moved"], again["unchanged"]) == (False, 1)
    hold(warehouse, "mcpso")
    hold(warehouse, "registry")
    assert run(warehouse)["servers_gone"] == 1
    [row] = warehouse.tables.read(CATALOGUE).to_dicts()
    assert row["gone"]


def test_the_audit_names_a_listing_that_is_lost_or_doubled():
    row = {"catalogue_id": "cat:1", "listings": '[{"listing_id": "x"}]', "gone": None}
    assert defs.check_one_row_each({"x"}, [row]).passed
    assert "x" in defs.check_one_row_each({"x"}, [row, row]).observed
    assert "y" in defs.check_one_row_each({"x", "y"}, [row]).observed
    assert not defs.check_listed_or_gone([{**row, "gone": "2026-01-01"}]).passed
