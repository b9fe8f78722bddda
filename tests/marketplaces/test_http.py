"""Requests stay on the marketplace's host, within their caps."""

import gzip
import socket

import pytest

from assets.marketplaces.crawl import CrawlError, CrawlPolicy
from assets.marketplaces.http import Fetcher
from tests.marketplaces.site import Answer, site


def policy(url: str, **changes: object) -> CrawlPolicy:
    facts = {"base_url": url, "requests_per_second": 0, "allow_loopback": True} | changes
    return CrawlPolicy(**facts)  # type: ignore[arg-type]


def failing(url: str, fetch: str, **changes: object) -> CrawlError:
    with Fetcher(policy(url, **changes)) as fetcher, pytest.raises(CrawlError) as caught:
        fetcher.get(fetch)
    return caught.value


def test_a_private_address_is_refused_before_a_packet_is_sent() -> None:
    with site(lambda *_: Answer("secret")) as here:
        error = failing(here.url, here.url, allow_loopback=False)
        assert error.kind == "forbidden_host"
        assert here.paths == []


@pytest.mark.parametrize("address", ["http://169.254.169.254/latest", "http://10.0.0.1/"])
def test_other_private_addresses_are_refused_even_where_loopback_is_allowed(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("a packet was sent")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    assert failing(address, address).kind == "forbidden_host"


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/meta", "http://example.com/", "file:///etc/passwd"]
)
def test_a_redirect_away_from_the_marketplace_is_refused(target: str) -> None:
    with site(lambda *_: Answer(status=302, headers={"Location": target})) as here:
        assert failing(here.url, f"{here.url}/a").kind == "forbidden_host"
        assert here.paths == ["/a"]


def test_a_redirect_on_the_same_host_is_followed_and_a_loop_of_them_is_not() -> None:
    def answer(path: str, _: int) -> Answer:
        if path == "/end":
            return Answer("here", content_type="text/plain; charset=utf-8")
        return Answer(status=301, headers={"Location": "/end" if path == "/start" else path})

    with site(answer) as here:
        with Fetcher(policy(here.url)) as fetcher:
            page = fetcher.get(f"{here.url}/start")
        assert (page.text(), page.content_type) == ("here", "text/plain")
        assert "redirects" in failing(here.url, f"{here.url}/loop").found


def test_a_body_over_the_cap_is_refused_compressed_or_not() -> None:
    bomb = gzip.compress(bytes(20_000_000))

    def answer(path: str, _: int) -> Answer:
        packed = {"Content-Encoding": "gzip"} if path == "/gzip" else {}
        return Answer(bomb if packed else bytes(200_000), headers=packed)

    with site(answer) as here:
        for path in ("/gzip", "/plain"):
            error = failing(here.url, here.url + path, max_body_bytes=100_000)
            assert error.kind == "too_large"


def test_a_gzip_body_arrives_whole_and_other_encodings_are_refused() -> None:
    text = "x" * 50_000

    def answer(path: str, _: int) -> Answer:
        encoding = path.strip("/")
        return Answer(gzip.compress(text.encode()), headers={"Content-Encoding": encoding})

    with site(answer) as here:
        with Fetcher(policy(here.url)) as fetcher:
            assert fetcher.get(f"{here.url}/gzip").text() == text
        assert failing(here.url, f"{here.url}/br").kind == "wrong_type"


def test_a_passing_failure_is_tried_again_and_a_lasting_one_is_told() -> None:
    def answer(path: str, number: int) -> Answer:
        if path == "/passing" and number == 3:
            return Answer("fine")
        return Answer(status=429 if path == "/passing" else 404, headers={"Retry-After": "0"})

    with site(answer) as here:
        with Fetcher(policy(here.url)) as fetcher:
            assert fetcher.get(f"{here.url}/passing").text() == "fine"
            assert fetcher.requests == 3
        error = failing(here.url, f"{here.url}/lasting")
        assert error.kind == "http_status"
        assert here.paths.count("/lasting") == 1


def test_a_marketplace_that_is_down_is_unreachable_and_the_message_says_what_to_do() -> None:
    with site(lambda *_: Answer()) as here:
        pass
    error = failing(here.url, here.url)
    assert error.kind == "unreachable"
    assert "check that the marketplace is up" in str(error)
