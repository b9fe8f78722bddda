"""The asset `catalogue` through real Dagster over a warehouse with published listings."""

import dagster as dg

from assets.catalogue.catalogue import CATALOGUE
from assets.catalogue.defs import catalogue_asset, check_listed_or_gone, check_one_row_each
from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from tests.catalogue.servers import listing
from tests.support.pages import list_tokens
from warehouse.store import Warehouse

ONE = listing("a", npm="@example/notes", updated_at="2026-01-01T00:00:00Z")
COPY = listing("c", "mcpso", npm="@example/notes", version="0.9.0")


def hold(warehouse: Warehouse, marketplace: str, *listings: Listing) -> None:
    frame = LISTINGS.frame([make_row(item) for item in listings])
    warehouse.tables.promote(warehouse.tables.stage(LISTINGS, frame, marketplace), "run", [])


def run(warehouse: Warehouse) -> dict:
    resources = {"warehouse": dg.ResourceDefinition.hardcoded_resource(warehouse)}
    result = dg.materialize([catalogue_asset], resources=resources)
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


def test_a_name_is_text_on_the_page_of_the_asset(warehouse):
    name = "![](http://127.0.0.1:9/beacon) | <b>x</b> | [y](http://127.0.0.1:9)"
    hold(warehouse, "registry", ONE.model_copy(update={"name": name}))
    hold(warehouse, "mcpso", COPY.model_copy(update={"name": name}))
    page = run(warehouse)["table_most_listed"]
    tokens = [token.type for token in list_tokens(page)]
    assert not {"image", "link_open", "html_inline"} & set(tokens)
    assert (tokens.count("tr_open"), tokens.count("td_open")) == (2, 4)


def test_the_audit_names_a_listing_that_is_lost_or_doubled():
    row = {"catalogue_id": "cat:1", "listings": '[{"listing_id": "x"}]', "gone": None}
    assert check_one_row_each({"x"}, [row]).passed
    assert "x" in check_one_row_each({"x"}, [row, row]).observed
    assert "y" in check_one_row_each({"x", "y"}, [row]).observed
    assert not check_listed_or_gone([{**row, "gone": "2026-01-01"}]).passed
