"""Which kinds of servers are missing among the launched ones."""

from random import Random

import dagster as dg
import pytest

from assets.catalogue.catalogue import CATALOGUE, build_catalogue, read_listing_ids
from assets.catalogue.categories import CATEGORIES, find_category
from assets.catalogue.coverage import (
    COVERAGE,
    DIMENSIONS,
    CoverageServer,
    choose_size,
    collect_servers,
    compute_coverage_figures,
    describe_credentials,
    measure_coverage,
    render_table,
)
from assets.catalogue.defs import check_sums, coverage_asset
from assets.marketplaces.listing import EnvVar, HeaderVar, make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from tests.catalogue.servers import listing
from warehouse.store import Warehouse

KEY = (EnvVar(name="API_KEY", secret=True, required=True),)


def made_up(n: int, launch_rate: dict[str, float], seed: int = 0) -> list[CoverageServer]:
    rng, found = Random(seed), []
    for at in range(n):
        asks = "required secret" if at % 2 else "none asked"
        launched = rng.random() < launch_rate[asks]
        values = {
            "category": rng.choice(CATEGORIES),
            "ecosystem": rng.choice(("npm", "pypi")),
            "transport": "stdio",
            "credentials": asks,
        }
        found.append(CoverageServer(launched, values | ({"size": "1-5 tools"} if launched else {})))
    return found


def row_of(rows: list[dict], dimension: str, value: str) -> dict:
    [row] = [row for row in rows if (row["dimension"], row["value"]) == (dimension, value)]
    return row


def test_what_launches_less_often_is_under_represented() -> None:
    rows = measure_coverage(made_up(600, {"required secret": 0.2, "none asked": 0.8}))
    gated = row_of(rows, "credentials", "required secret")
    assert gated["standing"] == "under"
    assert gated["gap_low"] <= gated["gap"] <= gated["gap_high"] < 0
    assert row_of(rows, "credentials", "none asked")["standing"] == "over"
    assert gated["distance_p"] < 0.01
    assert gated["rate_low"] < gated["rate"] < gated["rate_high"]


def test_launches_at_random_show_no_gap_beyond_chance() -> None:
    rates = {"required secret": 0.5, "none asked": 0.5}
    false_alarms = [
        row_of(measure_coverage(made_up(300, rates, seed)), "credentials", "none asked")[
            "distance_p"
        ]
        < 0.05
        for seed in range(40)
    ]
    assert sum(false_alarms) <= 6  # 2 expected; more than 6 of 40 has a chance of 0.3%


def test_the_same_servers_give_the_same_rows() -> None:
    found = made_up(200, {"required secret": 0.3, "none asked": 0.6})
    assert measure_coverage(found) == measure_coverage(list(found))


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_no_launches_all_launches_and_no_servers_are_tables_too(n: int, rate: float) -> None:
    found = made_up(n, {"required secret": rate, "none asked": rate})
    rows = measure_coverage(found)
    assert COVERAGE.frame(rows).height == sum(map(len, DIMENSIONS.values()))
    assert check_sums(rows, n, n if rate else 0).passed
    assert all(row["standing"] in ("unknown", "as listed") for row in rows)
    assert render_table(rows)


def test_a_server_that_is_lost_or_doubled_is_refused() -> None:
    rows = measure_coverage(made_up(10, {"required secret": 1.0, "none asked": 0.0}))
    assert not check_sums(rows, 11, 5).passed
    assert "size" in check_sums(rows, 10, 4).observed


def test_sizes_are_known_of_launched_servers_only() -> None:
    row = row_of(
        measure_coverage(made_up(50, {"required secret": 0.5, "none asked": 0.5})),
        "size",
        "1-5 tools",
    )
    assert row["launched_share"] == 1.0
    assert (row["listed"], row["listed_share"], row["gap"]) == (None, None, None)
    assert [choose_size(n) for n in (1, 5, 6, 15, 16, 40, 41)] == [
        *("1-5 tools",) * 2, *("6-15 tools",) * 2, *("16-40 tools",) * 2, "over 40 tools",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "asks"),
    [
        ({}, "none asked"),
        ({"env": KEY}, "required secret"),
        ({"env": (EnvVar(name="API_KEY", secret=True),)}, "optional secret"),
        ({"env": (EnvVar(name="ROOT", required=True),)}, "other input"),
        (
            {"headers": (HeaderVar(name="Authorization", secret=True, required=True),)},
            "required secret",
        ),
        ({"flags": ("hosted_gateway",)}, "required secret"),
        ({"flags": ("placeholder",)}, "other input"),
    ],
)
def test_what_a_server_asks_of_its_user(facts: dict, asks: str) -> None:
    assert describe_credentials([listing("a", npm="a", **facts)]) == asks


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Query a PostgreSQL database", "databases"),
        ("GitHub pull requests and repositories", "code & repositories"),
        ("Send messages to Slack", "communication"),
        ("Stripe payments", "finance & commerce"),
        ("Does things.", "other"),
        ("io.github.owner/postgres-mcp", "databases"),
        ("@slack-tools/sqlite", "databases"),
    ],
)
def test_a_category_is_read_from_the_words(text: str, category: str) -> None:
    assert find_category(text) == category
    assert category in CATEGORIES


def test_one_server_on_two_marketplaces_is_counted_once() -> None:
    one = listing("a", npm="@example/notes", env=KEY)
    two = listing("b", "mcpso", npm="@example/notes")
    three = listing("c", url="https://example.org/mcp", transport="sse")
    rows = build_catalogue([one, two, three], [], [], 0.0)
    held = [{**row, "listing_ids": read_listing_ids(row)} for row in rows]
    servers = collect_servers(
        held, {item.listing_id: item for item in (one, two, three)}, {"npm:@example/notes": 7}
    )
    assert len(servers) == 2
    [launched] = [item for item in servers if item.launched]
    assert launched.values["credentials"] == "required secret"
    assert (launched.values["ecosystem"], launched.values["size"]) == ("npm", "6-15 tools")
    [other] = [item for item in servers if not item.launched]
    assert (other.values["ecosystem"], other.values["transport"]) == ("remote", "sse")


def test_the_asset_publishes_rows_and_a_table(warehouse: Warehouse) -> None:
    found = [listing(f"s{at}", npm=f"@example/s{at}", env=KEY if at % 2 else ()) for at in range(8)]
    rows = build_catalogue(found, [], [], 0.0)
    ran = {"server_id": "npm:@example/s0", "marketplace": "registry", "status": "ok", "n_tools": 3}
    frames = (
        (LISTINGS, LISTINGS.frame([make_row(item) for item in found]), "registry"),
        (CATALOGUE, CATALOGUE.frame(rows), None),
        (DEPLOYMENTS, DEPLOYMENTS.frame([ran]), "registry"),
    )
    for spec, frame, partition in frames:
        warehouse.tables.promote(warehouse.tables.stage(spec, frame, partition), "run", [])
    resources = {"warehouse": dg.ResourceDefinition.hardcoded_resource(warehouse)}
    result = dg.materialize([coverage_asset], resources=resources)
    [event] = result.get_asset_materialization_events()
    metadata = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (metadata["servers_listed"], metadata["servers_launched"]) == (8, 1)
    assert "required secret" in metadata["table"]
    published = warehouse.tables.read(COVERAGE)
    assert published.filter(dimension="ecosystem", value="npm")["listed"].to_list() == [8]


def test_the_figures_name_the_distances() -> None:
    rows = measure_coverage(made_up(100, {"required secret": 0.1, "none asked": 0.9}))
    figures = compute_coverage_figures(rows)
    assert figures["servers_listed"] == 100
    assert figures["distance_credentials"] > 0.2
    assert "distance_size" not in figures
