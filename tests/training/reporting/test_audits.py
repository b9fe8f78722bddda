"""One page says what is expected of each table, with the last verdicts; third parties' text is
text."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

import orchestration.definitions
from training.reporting.audits import make_suite, render_audits, write_audits
from warehouse.audit import (
    ColumnExpectation,
    Verdict,
    expect_between,
    expect_present,
    expect_unique,
)
from warehouse.publish import list_declared_audits
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

TOOLS = TableSpec(
    name="tools",
    key=("name",),
    columns={"name": (pl.String, "as <listed>"), "seconds": pl.Float64},
    volatile=("seconds",),
)


@dataclass(frozen=True)
class Asked:
    asset: str = "tools"
    table: TableSpec | None = TOOLS
    expectations: tuple[ColumnExpectation, ...] = (
        expect_unique("name"),
        expect_between("seconds", 0, 9),
    )
    rules: tuple[str, ...] = ("floor",)


@dataclass
class Parsed(HTMLParser):
    """The words of a page, its links, and its elements that would load or run something."""

    words: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    active: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag in ("script", "img", "link", "iframe") or any(name == "src" for name, _ in attrs):
            self.active.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def parse_page(text: str) -> Parsed:
    page = Parsed()
    page.feed(text)
    return page


def publish(warehouse: Warehouse, observed: str) -> None:
    staged = warehouse.tables.stage(TOOLS, TOOLS.frame([{"name": "a", "seconds": 1.0}]))
    verdicts = [vars(Verdict("name_unique", True, observed)), vars(Verdict("floor", False, "1"))]
    warehouse.tables.promote(staged, "run", verdicts)


def test_the_page_shows_suite_columns_and_verdicts_and_loads_nothing(warehouse: Warehouse) -> None:
    publish(warehouse, "e.g. <script>alert(1)</script>")
    page = parse_page(write_audits(warehouse.home, [Asked()]).read_text())
    words = " ".join(page.words)
    for told in ("name_unique", "values from 0 to 9", "as <listed>", "volatile: takes no part"):
        assert told in words
    assert "e.g. <script>alert(1)</script>" in words
    assert (page.active, page.links) == ([], ["#tools", "suites/tools.json"])
    assert "failed" in page.words
    suite = json.loads((warehouse.home / "reports/audits/suites/tools.json").read_bytes())
    assert suite == make_suite(Asked())
    assert suite["expectations"][0]["kwargs"] == {"column": "name"}


def test_a_broken_pointer_leaves_the_rest_of_the_page(warehouse: Warehouse) -> None:
    publish(warehouse, "x")
    (warehouse.tables.folder("tools") / "HEAD.json").write_text("{")
    assert "name_unique" in render_audits([Asked()], warehouse.tables)


def test_every_audit_of_the_code_location_is_on_the_page(tmp_path: Path) -> None:
    assets = orchestration.definitions.defs.resolve_all_asset_specs()
    checked = {spec.key.to_user_string() for spec in assets}
    declared = {audit.asset: audit for audit in list_declared_audits()}
    assert checked <= set(declared)
    page = parse_page(write_audits(tmp_path, [declared[name] for name in checked]).read_text())
    assert {f"#{name}" for name in checked} <= set(page.links)
    expected = sum(len(declared[name].expectations) for name in checked)
    assert expected >= 50


@pytest.mark.slow
def test_great_expectations_reads_its_suites() -> None:
    from great_expectations import ExpectationSuite

    for one in (
        Asked(),
        Asked(expectations=(expect_present("name"), expect_unique("name", "seconds"))),
    ):
        suite = make_suite(one)
        read = ExpectationSuite(**suite)
        assert [e.expectation_type for e in read.expectations] == [
            e["type"] for e in suite["expectations"]
        ]
