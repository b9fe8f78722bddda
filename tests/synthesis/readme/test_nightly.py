"""READMEs that a run reads: of servers that list nothing, on one site, once in a while."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from assets.marketplaces.listing import Listing
from assets.synthesis.readme.fetch import fetch_readmes, make_readme_url
from assets.synthesis.readme.nightly import Readmes
from assets.synthesis.readme.policy import ReadmeOptions
from assets.synthesis.writing.endpoints import Writer
from orchestration.factories import make_readmes
from orchestration.settings.load import SettingsError, load_settings
from tests.support.http_mcp import served
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.readme.test_readme import README
from warehouse.llm.client import OFFLINE, Role
from warehouse.store import Warehouse

DAY_S = 86_400.0
RULES = Writer((Role("generator"),))


class Site:
    """Where READMEs lie; `asked` is which were asked for, `fails` answers 403."""

    def __init__(self, url: str) -> None:
        self.options = ReadmeOptions(enabled=True, base_url=url, requests_per_second=10)
        self.asked: list[str] = []
        self.files = {"/ann/weather/HEAD/README.md": README}
        self.fails = False


@pytest.fixture
def site() -> Iterator[Site]:
    def answer(request: Request) -> PlainTextResponse:
        path = request.url.path
        made.asked += [path] if path != "/robots.txt" else []
        if made.fails:
            return PlainTextResponse("no", 403)
        return PlainTextResponse(made.files.get(path, ""), 200 if path in made.files else 404)

    with served(Starlette(routes=[Route("/{path:path}", answer)])) as url:
        made = Site(url)
        yield made


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    made = Warehouse(home=tmp_path / "home", state=tmp_path / "state", budget_usd=1.0)
    yield made
    made.ledger.close()


def listing(name: str, repository: str | None, market: str = "mcpso") -> Listing:
    return Listing(marketplace=market, native_id=name, name=name, repository=repository)


WEATHER = listing("weather", "https://github.com/ann/weather")


@pytest.mark.parametrize(
    ("repository", "subfolder", "path"),
    [
        ("https://github.com/ann/weather", None, "ann/weather/HEAD/README.md"),
        ("git+https://www.GitHub.com/Ann/Weather.git#readme", None, "Ann/Weather/HEAD/README.md"),
        ("https://github.com/a/b/tree/main/src/c d", None, None),
        ("https://github.com/a/b/tree/main/src/c/", None, "a/b/HEAD/src/c/README.md"),
        ("https://github.com/a/b", "src/c", "a/b/HEAD/src/c/README.md"),
        ("https://github.com/a/b", "../../c", None),
        ("https://github.com/a/..", None, None),
        ("https://gitlab.com/a/b", None, None),
        ("https://github.com.evil.example/a/b", None, None),
        ("https://github.com/a", None, None),
        (None, None, None),
    ],
)
def test_a_readme_lies_in_its_repository_or_folder(
    repository: str | None, subfolder: str | None, path: str | None
) -> None:
    found = make_readme_url("https://raw.example", repository, subfolder)
    assert found == (path and f"https://raw.example/{path}")


def test_what_rules_read_is_found_once_and_asked_for_once(site: Site, warehouse: Warehouse) -> None:
    readmes = Readmes(site.options, RULES)
    listings = [
        WEATHER,
        listing("gone", "https://github.com/ann/gone"),
        listing("one", "https://github.com/ann/many"),  # of which server, its README says not
        listing("other", "https://github.com/ann/many"),
        listing("secret", "https://github.com/ann/secret", "private"),
        listing("bare", None),
    ]
    found, figures = readmes.list_tools(warehouse, listings)
    assert set(found) == {"mcpso:weather"}
    tools, reader = found["mcpso:weather"]
    assert {tool["name"] for tool in tools} == {
        *("get_forecast", "get_history", "send_alert", "list_cities")
    }
    assert (reader, figures) == (
        OFFLINE,
        {"readmes": 1, "readmes_failed": 0, "readmes_left": 0},
    )
    assert site.asked == ["/ann/gone/HEAD/README.md", "/ann/weather/HEAD/README.md"]
    assert readmes.list_tools(warehouse, listings) == (found, figures)
    assert len(site.asked) == 2


def test_nothing_is_read_until_somebody_asks(site: Site, warehouse: Warehouse) -> None:
    off = Readmes(replace(site.options, enabled=False), RULES)
    assert off.list_tools(warehouse, [WEATHER]) == ({}, {})
    assert Readmes(site.options).list_tools(warehouse, [WEATHER]) == ({}, {})
    assert site.asked == []


def test_a_run_asks_for_so_many_and_the_next_one_goes_on(site: Site, warehouse: Warehouse) -> None:
    site.files["/ann/a/HEAD/README.md"] = README
    readmes = Readmes(replace(site.options, most=1), RULES)
    both = [WEATHER, listing("a", "https://github.com/ann/a")]
    found, figures = readmes.list_tools(warehouse, both)
    assert (list(found), figures["readmes_left"]) == (["mcpso:a"], 1)
    found, figures = readmes.list_tools(warehouse, both)
    assert (len(found), figures["readmes_left"]) == (2, 0)


def test_one_that_is_due_again_stays_until_it_is_had(site: Site, warehouse: Warehouse) -> None:
    url = make_readme_url(site.options.base_url, WEATHER.repository, None) or ""
    asked = ([url], site.options, warehouse.ledger, "toolmill")
    first = fetch_readmes(*asked, 100 * DAY_S)
    assert first == ({url: README}, 0)
    site.files = dict.fromkeys(site.files, "# Another")
    assert fetch_readmes(*asked, 100 * DAY_S) == first
    site.fails = True
    assert fetch_readmes(*asked, 130 * DAY_S) == first
    site.fails = False
    assert fetch_readmes(*asked, 130 * DAY_S) == ({url: "# Another"}, 0)


def test_a_model_reads_within_the_budget_and_is_named(site: Site, warehouse: Warehouse) -> None:
    answer = {"tools": [{"name": "get_history"}, {"name": "made_up"}]}
    with openai_endpoint([Say(json.dumps(answer))]) as endpoint:
        role = Role("generator", model="m-1", base_url=endpoint.url, api_key="k", attempts=1,
                    timeout_s=5.0, usd_in=1.0, usd_out=2.0)  # fmt: skip
        readmes = Readmes(site.options, Writer((role,)))
        found, _ = readmes.list_tools(warehouse, [WEATHER])
        [tool], reader = found["mcpso:weather"]
        assert (tool["name"], reader.rpartition(" ")[2]) == ("get_history", "m-1")
        assert readmes.list_tools(warehouse, [WEATHER])[0] == found
        assert len(endpoint.requests) == 1
        site.files["/ann/dear/HEAD/README.md"] = f"{README}\nDear."
        dear = Readmes(site.options, Writer((replace(role, usd_in=1e6),)))
        found, figures = dear.list_tools(warehouse, [listing("d", "https://github.com/ann/dear")])
        assert (found, figures["readmes_failed"]) == ({}, 1)
        assert len(endpoint.requests) == 1


def test_the_setting_is_off_and_the_demo_asks_no_real_site(monkeypatch: Any) -> None:
    assert make_readmes(load_settings()).writer is None
    monkeypatch.setenv("TOOLMILL_READMES__ENABLED", "true")
    assert make_readmes(load_settings()).writer is None
    monkeypatch.setenv("TOOLMILL_SOURCE", "live")
    assert make_readmes(load_settings()).writer is not None
    monkeypatch.setenv("TOOLMILL_READMES__MOST", "0")
    with pytest.raises(SettingsError, match=r"TOOLMILL_READMES__MOST .*greater than or equal to 1"):
        load_settings()
