"""Requests stay on the marketplace's hosts, within their caps, at a shared pace."""

import asyncio
import gzip

import pytest

from assets.marketplaces.crawl.fetcher import FetchResult, PageFetcher
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from tests.support.errors import expect_kind


def policy(url: str, **changes: object) -> CrawlPolicy:
    facts = {"base_url": url, "requests_per_second": 0, "allow_loopback": True} | changes
    return CrawlPolicy(**facts)  # type: ignore[arg-type]


class Fetching:
    """A fetcher of one event loop, for tests that want its figures afterwards."""

    def __init__(self, chosen: CrawlPolicy, headers: dict[str, str] | None = None) -> None:
        self.policy, self.headers, self.requests = chosen, headers or {}, 0

    def get(self, *urls: str, validators: dict[str, str] | None = None) -> list[FetchResult]:
        async def fetch() -> list[FetchResult]:
            fetcher = PageFetcher(self.policy)
            fetcher.headers = self.headers
            try:
                return await asyncio.gather(*(fetcher.get(url, validators) for url in urls))
            finally:
                self.requests = fetcher.requests
                await fetcher.close()

        return asyncio.run(fetch())


def page(url: str, fetch: str, **changes: object) -> FetchedPage:
    result = Fetching(policy(url, **changes)).get(fetch)[0].page
    assert result is not None
    return result


def failing(url: str, fetch: str, **changes: object) -> CrawlError:
    with pytest.raises(CrawlError) as caught:
        page(url, fetch, **changes)
    return caught.value


def test_the_crawlers_own_client_uses_that_connector():
    with site(lambda *_: Answer("secret")) as here:
        name = here.url.replace("127.0.0.1", "localhost")
        for url in (here.url, name):
            assert failing(url, url, allow_loopback=False).kind == "forbidden_host"
        assert here.paths == []
        assert page(name, name).decode_text() == "secret"


@cases(
    "target",
    "http://169.254.169.254/meta", "http://example.com/", "file:///etc/passwd", "//example.com/x",
)  # fmt: skip
def test_a_redirect_away_from_the_marketplace_is_refused(target):
    with site(lambda *_: Answer(status=302, headers={"Location": target})) as here:
        assert failing(here.url, f"{here.url}/a").kind == "forbidden_host"
        assert here.paths == ["/a"]


def test_a_redirect_on_the_same_host_is_followed_once_and_keys_go_to_no_other_host():
    def answer(path: str, _: int) -> Answer:
        if path == "/end":
            return Answer("here", content_type="text/plain; charset=utf-8")
        return Answer(status=301, headers={"Location": "/end" if path == "/start" else path})

    with site(answer) as here:
        found = page(here.url, f"{here.url}/start")
        assert (found.decode_text(), found.content_type) == ("here", "text/plain")
        assert "redirects" in failing(here.url, f"{here.url}/loop").found
    with site(lambda *_: Answer("x")) as api, site(lambda *_: Answer("x")) as pages:
        fetching = Fetching(policy(api.url, site_url=pages.url), {"Authorization": "Bearer k"})
        fetching.get(f"{api.url}/a", f"{pages.url}/b")
    assert api.headers[0]["Authorization"] == "Bearer k"
    assert "Authorization" not in pages.headers[0]


def test_a_marketplace_over_tls_is_not_read_without_it():
    error = failing("https://example.com", "http://example.com/a")
    assert (error.kind, error.found) == ("forbidden_host", "a URL without TLS")


def test_a_body_over_the_cap_is_refused_compressed_or_not():
    bomb = gzip.compress(bytes(20_000_000))

    def answer(path: str, _: int) -> Answer:
        packed = {"Content-Encoding": "gzip"} if path == "/gzip" else {}
        return Answer(bomb if packed else bytes(200_000), headers=packed)

    with site(answer) as here:
        for path in ("/gzip", "/plain"):
            error = failing(here.url, here.url + path, max_body_mb=100_000 / 2**20)
            assert error.kind == "too_large"


def test_a_gzip_body_arrives_whole_and_other_encodings_are_refused():
    text = "x" * 50_000

    def answer(path: str, _: int) -> Answer:
        encoding = path.strip("/")
        return Answer(gzip.compress(text.encode()), headers={"Content-Encoding": encoding})

    with site(answer) as here:
        assert page(here.url, f"{here.url}/gzip").decode_text() == text
        assert failing(here.url, f"{here.url}/br").kind == "wrong_type"


@cases("cut", slice(None, 40), slice(5, None))
def test_a_gzip_body_that_is_cut_or_broken_is_truncated(cut):
    body = gzip.compress(bytes(range(256)) * 40)[cut]
    with site(lambda *_: Answer(body, headers={"Content-Encoding": "gzip"})) as here:
        assert failing(here.url, here.url).kind == "truncated"


def test_a_passing_failure_is_tried_again_and_a_lasting_one_is_told():
    def answer(path: str, number: int) -> Answer:
        if path == "/passing" and number == 3:
            return Answer("fine")
        return Answer(status=429 if path == "/passing" else 404, headers={"Retry-After": "0"})

    with site(answer) as here:
        fetching = Fetching(policy(here.url))
        assert fetching.get(f"{here.url}/passing")[0].page is not None
        assert fetching.requests == 3
        error = failing(here.url, f"{here.url}/lasting")
        assert (error.kind, error.status) == ("http_status", 404)
        assert here.paths.count("/lasting") == 1


def test_a_storm_of_refusals_ends_soon_and_keeps_what_was_read():
    with site(lambda *_: Answer(status=429, headers={"Retry-After": "0"})) as here:
        fetching = Fetching(policy(here.url))
        with expect_kind(CrawlError, "rate_limited") as caught:
            fetching.get(*(f"{here.url}/{number}" for number in range(40)))
        assert caught.value.passing
        assert len(here.paths) < 40 * 4


def test_a_marketplace_that_asks_for_an_hour_is_left_alone_at_once():
    with site(lambda *_: Answer(status=503, headers={"Retry-After": "3600"})) as here:
        assert failing(here.url, here.url).kind == "rate_limited"
        assert len(here.paths) == 1


def test_a_refusal_holds_back_every_request_to_that_host():
    def answer(path: str, number: int) -> Answer:
        refused = path == "/0" and number == 1
        return Answer(status=429 if refused else 200, headers={"Retry-After": "1"})

    with site(answer) as here:
        urls = [f"{here.url}/{number}" for number in range(4)]
        fetching = Fetching(policy(here.url, requests_per_second=20.0))
        fetching.get(*urls)
        # One request found the refusal; those after it in the queue came only when it had passed.
        assert here.paths[0] == "/0"
        assert here.times[1] - here.times[0] > 0.9 or here.times[2] - here.times[1] > 0.9


def test_an_unchanged_page_is_not_sent_again():
    def answer(path: str, number: int) -> Answer:
        return Answer("text", status=200 if number == 1 else 304, headers={"ETag": '"v1"'})

    with site(answer) as here:
        fetching = Fetching(policy(here.url))
        first = fetching.get(here.url)[0]
        again = fetching.get(here.url, validators=first.validators)[0]
        assert (dict(first.validators), again.page) == ({"etag": '"v1"'}, None)
        assert here.headers[1]["If-None-Match"] == '"v1"'


def test_a_marketplace_that_is_down_is_unreachable_and_the_message_says_what_to_do():
    with site(lambda *_: Answer()) as here:
        pass
    with expect_kind(CrawlError, "unreachable", match="check that the marketplace is up"):
        page(here.url, here.url)
