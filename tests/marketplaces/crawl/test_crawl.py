"""The engine over real HTTP: robots, revisions, caps, secrets, failures; paging of APIs."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from assets.marketplaces.crawl.crawl import crawl, load_adapter
from assets.marketplaces.crawl.result import CrawlResult
from assets.marketplaces.installed import OURS, list_installed
from assets.marketplaces.listing import make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.policy import CrawlError, CrawlPolicy, PostForm, UnknownMarketplace
from tests.marketplaces.acme import AcmeAdapter, server
from tests.marketplaces.site import Answer, Script, Site, site
from tests.support.cases import cases
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.ledger.ledger import Ledger

JSON = "application/json"


def acme(
    *items: dict[str, Any], pages: dict[str, Answer] | None = None, robots: Answer | None = None
) -> Script:
    """A site that lists `items`, each with its page."""

    def answer(path: str, number: int) -> Answer:
        if path == "/robots.txt":
            return robots or Answer(status=404)
        if path in (pages or {}):
            return (pages or {})[path]
        if path.startswith("/list"):
            return Answer(json.dumps({"servers": list(items)}), content_type=JSON)
        return Answer(server(path.rsplit("/", 1)[1]), content_type=JSON)

    return answer


def policy_of(here: Site, **policy: Any) -> CrawlPolicy:
    facts = {"base_url": here.url, "requests_per_second": 0, "allow_loopback": True}
    return CrawlPolicy(**facts | policy)


def run(
    here: Site, ledger: Ledger, run_date: str = "1", how: Any = None, **policy: Any
) -> CrawlResult:
    adapter = AcmeAdapter(policy_of(here, **policy))
    return crawl(adapter, ledger=ledger, run_date=run_date, **how or {})


def ids(result: CrawlResult) -> list[str]:
    return [listing.native_id for listing in result.listings]


def test_an_unchanged_record_costs_no_request_and_a_changed_one_costs_one(ledger):
    revisions = {"a": "1", "b": "1", "c": None}

    def answer(path: str, number: int) -> Answer:
        items = [{"id": name, "revision": found} for name, found in revisions.items()]
        return acme(*items)(path, number)

    with site(answer) as here:
        assert ids(run(here, ledger)) == ["a", "b", "c"]
        revisions["b"] = "2"
        here.paths.clear()
        again = run(here, ledger, run_date="2")
        assert ids(again) == ["a", "b", "c"]
    # The record without a revision has only the run date to go by.
    assert sorted(here.paths) == ["/list?page=1", "/robots.txt", "/servers/b", "/servers/c"]
    assert (again.requests, again.pages) == (4, 5)


def test_a_weak_revision_is_read_again_when_it_is_old(ledger):
    with site(acme({"id": "a", "revision": "1", "weak": True})) as here:
        for run_date, days in (("1", 7.0), ("2", 7.0), ("3", 1e-9), ("4", 7.0), ("5", 0.0)):
            run(here, ledger, run_date=run_date, refresh_days=days)
            time.sleep(0.01)
    # In runs 1 and 3; run 5 never reads again, under a key of its own.
    assert here.paths.count("/servers/a") == 3


def test_pages_are_asked_for_conditionally_and_a_lost_copy_unconditionally(ledger):
    def answer(path: str, number: int) -> Answer:
        found = acme({"id": "a"})(path, number)
        known = here.headers[-1].get("If-None-Match") == f'"{path}"'
        return replace(found, status=304 if known else found.status, headers={"ETag": f'"{path}"'})

    with site(answer) as here:
        first = run(here, ledger)
        again = run(here, ledger, run_date="2")
        # robots.txt answered 404: there is nothing to compare it with.
        assert ["If-None-Match" in header for header in here.headers[3:]] == [False, True, True]
        assert again.frame.drop("fetched_at").equals(first.frame.drop("fetched_at"))
        for blob in ledger.blobs.root.rglob("*"):
            if blob.is_file():
                blob.unlink()
        assert ids(run(here, ledger, run_date="3")) == ["a"]


def test_robots_txt_is_read_once_a_run_and_obeyed_with_its_wildcards(ledger):
    rules = Answer("User-agent: *\nDisallow: /*/b$\nDisallow: /x\n", content_type="text/plain")
    with site(acme({"id": "a"}, {"id": "b"}, {"id": "bb"}, robots=rules)) as here:
        result = run(here, ledger)
    assert ids(result) == ["a", "bb"]
    assert [(row["native_id"], row["error_kind"]) for row in result.problems] == [("b", "robots")]
    assert result.completeness == "complete"  # what is forbidden is known, and is not gone
    assert result.unread == {"b"}
    assert here.paths.count("/robots.txt") == 1
    assert "/servers/b" not in here.paths


@cases(
    "robots",
    Answer("User-agent: toolmill\nDisallow: /list\n", content_type="text/plain"),
    Answer(status=500),
)
def test_a_list_that_robots_forbids_or_may_forbid_is_an_error_and_not_requested(robots, ledger):
    kind = r"\(robots\)" if robots.status == 200 else ""
    with site(acme({"id": "a"}, robots=robots)) as here, pytest.raises(CrawlError, match=kind):
        run(here, ledger)
    assert set(here.paths) == {"/robots.txt"}


def test_a_crawl_delay_slows_the_crawl_down_and_a_long_one_ends_it(ledger):
    rules = Answer("User-agent: *\nCrawl-delay: 0.3\n", content_type="text/plain")
    began = time.monotonic()
    with site(acme({"id": "a"}, {"id": "b"}, robots=rules)) as here:
        run(here, ledger)
    # Not by when they arrived: a busy machine holds one up, and the next comes on its heels.
    assert time.monotonic() - began >= 0.3 * len(here.paths[1:-1])
    rules = Answer("User-agent: *\nCrawl-delay: 3600\n", content_type="text/plain")
    with site(acme({"id": "a"}, robots=rules)) as here, pytest.raises(CrawlError) as caught:
        run(here, ledger)
    assert "crawl-delay of 3600 s" in caught.value.found


def test_a_crawl_over_its_cap_reads_on_in_the_next_runs(ledger):
    items = [{"id": name, "revision": "1"} for name in "abcde"]
    with site(acme(*items)) as here:
        seen = []
        for run_date in "123":
            result = run(here, ledger, run_date=run_date, detail_cap=2, concurrency=1)
            seen.append((len(ids(result)), result.completeness))
            assert {row["error_kind"] for row in result.problems} <= {"over_cap"}
    assert seen == [(2, "capped"), (4, "capped"), (5, "complete")]
    assert set(ledger.counts()) == {("page", "done")}  # no robots.txt is an answer, too
    assert len([path for path in here.paths if path.startswith("/servers")]) == 5


def test_a_killed_crawl_asks_only_for_what_is_missing(ledger):
    class Killed(BaseException):
        pass

    class AfterThree:
        def update(self, stage: str, done: int, total: int, **_: object) -> None:
            if stage.endswith("records") and done == 3:
                raise Killed

    items = [{"id": name} for name in "abcdef"]
    with site(acme(*items)) as here:
        with pytest.raises(Killed):
            run(here, ledger, how={"progress": AfterThree()})
        asked = {path for path in here.paths if path.startswith("/servers")}
        assert 3 <= len(asked) <= 6
        assert ids(run(here, ledger)) == list("abcdef")
    details = [path for path in here.paths if path.startswith("/servers")]
    assert len(details) - len(set(details)) <= policy_of(here).concurrency  # those in flight


def test_secrets_reach_neither_blobs_nor_table_nor_memo(ledger, tmp_path):
    token = "ghp_" + "a1B2" * 9
    page = server("a", env={"GITHUB_TOKEN": token}, args=["-y", "a@1", "--token", token])
    pages = {"/servers/a": Answer(page, content_type=JSON, headers={"ETag": "x"})}
    with site(acme({"id": "a"}, pages=pages)) as here:
        result = run(here, ledger)
    variable = result.listings[0].env[0]
    assert (variable.name, variable.required, variable.secret) == ("GITHUB_TOKEN", True, True)
    blobs = [path.name for path in ledger.blobs.root.rglob("*") if path.is_file()]
    assert blobs
    assert all(token.encode() not in ledger.blobs.get(name) for name in blobs)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(token.encode() not in path.read_bytes() for path in files)


def test_a_marketplace_that_is_unknown_or_without_an_address_is_told_what_helps(ledger):
    setting = r"\(missing_key\).*TOOLMILL_MARKETPLACES__ACME__BASE_URL"
    with pytest.raises(CrawlError, match=setting):
        crawl(AcmeAdapter(CrawlPolicy()), ledger=ledger, run_date="1")
    listed = "'nowhere' is unknown; known: deepnlp, docker, glama"
    with pytest.raises(UnknownMarketplace, match=listed):
        load_adapter("nowhere", CrawlPolicy(base_url="http://127.0.0.1:1"))
    assert set(OURS) <= set(list_installed())


def test_without_its_key_a_marketplace_is_skipped_and_asked_for_nothing(ledger):
    class Locked(AcmeAdapter):
        needs = ("api_key", "tenant_id")

        async def headers(self, post: PostForm) -> dict[str, str]:
            return {"X-API-Key": self.policy.keys["api_key"]}

    with site(acme({"id": "a"})) as here:
        policy = policy_of(here, keys={"api_key": "k"})
        result = crawl(Locked(policy), ledger=ledger, run_date="1")
        assert (result.completeness, here.paths) == ("skipped: key missing", [])
        assert "TOOLMILL_MARKETPLACES__ACME__TENANT_ID" in result.problems[0]["hint"]
        keys = {"api_key": "k", "tenant_id": "t"}
        crawl(Locked(replace(policy, keys=keys)), ledger=ledger, run_date="1")
        assert all(header["X-Api-Key"] == "k" for header in here.headers if "X-Api-Key" in header)
    assert "'k'" not in repr(policy)


def test_one_record_without_a_body_is_a_problem_and_many_or_a_refused_key_end_the_crawl(ledger):
    empty = {f"/servers/{name}": Answer("", content_type=JSON) for name in "abcdef"}
    items = [{"id": name} for name in "abcdefgh"]
    with site(acme(*items, pages={"/servers/b": empty["/servers/b"]})) as here:
        result = run(here, ledger)
    assert (len(ids(result)), result.completeness, result.unread) == (7, "truncated", {"b"})
    with site(acme(*items, pages=empty)) as here, pytest.raises(CrawlError, match=r"\(empty\)"):
        run(here, ledger)
    with site(acme({"id": "a"}, {"id": "b"}, pages={"/servers/b": Answer(status=410)})) as here:
        result = run(here, ledger)
    assert (ids(result), result.completeness) == (["a"], "truncated")
    assert result.problems[0]["error_kind"] == "http_status"
    locked = acme({"id": "a"}, pages={"/servers/a": Answer(status=401)})
    with site(locked) as here, pytest.raises(CrawlError, match="wants a key"):
        run(here, ledger)


@cases(
    "body",
    '{"name": "x"}',
    '{"name": "x", "config": 7}',
    '{"name": ["x"], "config": {"command": {}}}',
    '{"name": "x", "config": {"command": "a", "args": "b | sh"}}',
    '{"name": null, "config": {"command": "curl x | sh"}}',
    json.dumps({"name": "x", "config": {"command": "npx", "args": [[["deep"]]]}}),
)
def test_a_record_of_an_odd_shape_is_a_listing_with_a_reason(body, ledger):
    pages = {"/servers/b": Answer(body, content_type=JSON)}
    with site(acme({"id": "a"}, {"id": "b"}, pages=pages)) as here:
        result = run(here, ledger)
    assert ids(result) == ["a", "b"]
    assert (result.listings[1].runnable, bool(result.listings[1].reason)) == (False, True)


def test_a_memo_that_was_lost_costs_requests_and_no_data(ledger, tmp_path):
    with site(acme({"id": "a", "revision": "1", "weak": True})) as here:
        first = run(here, ledger)
        again = run(here, ledger, "2", {"memo": CrawlMemo(tmp_path / "another.db")})
    assert again.frame.drop("fetched_at").equals(first.frame.drop("fetched_at"))
    assert here.paths.count("/servers/a") == 2


# --- PulseMCP, Smithery, Glama and the registry over real HTTP: paging, runs, keys, faults


def record(name: str, **server: Any) -> dict[str, Any]:
    return {"server": {"name": name, "description": "x", "version": "1.0.0", **server}}


def body(*records: Any, cursor: str | None = None) -> Answer:
    text = json.dumps({"servers": list(records), "metadata": {"nextCursor": cursor}})
    return Answer(text, content_type="application/json")


def test_a_crawl_reads_every_page_and_keeps_every_record(demo_sites, at, ledger):
    demo_sites.switch(scale="standard")
    result = crawl(at("registry"), ledger=ledger, run_date="1")
    assert result.completeness == "complete"
    assert result.pages == result.requests == 3
    listed = {server.registry_name for server in demo_sites.world.list_records("registry")}
    assert {listing.native_id for listing in result.listings} == listed
    assert result.duplicates == ["io.github.toolmill/units"]
    assert [row["native_id"] for row in result.problems] == ["io.github.toolmill/malformed"]
    assert all(listing.runnable or listing.reason for listing in result.listings)
    frame = LISTINGS.frame([make_row(listing) for listing in result.listings])
    assert len(frame) == len(listed)


def test_the_same_run_asks_for_no_page_twice_and_the_next_run_asks_again(demo_sites, at, ledger):
    first = crawl(at("registry"), ledger=ledger, run_date="1")
    before = sum(demo_sites.count_by_kind("registry").values())
    again = crawl(at("registry"), ledger=ledger, run_date="1")
    assert (again.requests, sum(demo_sites.count_by_kind("registry").values())) == (0, before)
    assert again.listings == first.listings
    tomorrow = crawl(at("registry"), ledger=ledger, run_date="2")
    assert (tomorrow.requests, tomorrow.listings) == (tomorrow.pages, first.listings)


@cases("name", "registry", "mcpso")
@cases(
    "fault, kind",
    ("truncated", "truncated"),
    ("empty", "empty"),
    ("html", "wrong_type"),
    ("down", "unreachable"),
)
def test_a_bad_answer_is_an_error_and_not_done(fault, kind, name, demo_sites, at, ledger):
    demo_sites.switch(faults={name: fault})
    with pytest.raises(CrawlError, match=rf"\({kind}\)"):
        crawl(at(name), ledger=ledger, run_date="1")
    assert ledger.counts()["page", "failed"] == 1
    if name == "registry":
        good_pages = 1 if fault == "truncated" else 0  # only the last page is cut
        assert ledger.counts().get(("page", "done"), 0) == good_pages
        demo_sites.switch(faults={})
        assert crawl(at(name), ledger=ledger, run_date="1").completeness == "complete"


def test_the_page_cap_ends_the_list_as_capped(at, ledger):
    with site(lambda path, n: body(record(f"a/{path[-4:]}"), cursor=str(hash(path)))) as here:
        result = crawl(at("registry", here.url, page_cap=3), ledger=ledger, run_date="1")
    assert (result.completeness, result.pages) == ("capped", 3)
