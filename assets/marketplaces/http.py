"""Http: one polite, capped GET that never leaves the marketplace's own host.

What belongs here: rate, retries, redirects, address checks, size caps.
What does not: what a response must hold (the adapters check that) and the ledger (`crawl.py`).
"""

import ipaddress
import socket
import time
import zlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from assets.marketplaces.policy import CrawlError, CrawlPolicy

_RETRIES = 3
_REDIRECTS = 3
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True)
class Page:
    """A response with status 200, decompressed."""

    url: str
    content_type: str  # lower case, without parameters
    body: bytes

    def text(self) -> str:
        """The body as UTF-8; broken bytes become U+FFFD."""
        return self.body.decode("utf-8", errors="replace")


class Fetcher:
    """GETs under one policy. Not thread-safe: one crawl, one fetcher."""

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy
        self.host = urlsplit(policy.base_url).netloc
        self.requests = 0
        self._next_at = 0.0
        self._client = httpx.Client(
            timeout=policy.timeout_s,
            follow_redirects=False,
            trust_env=not policy.allow_loopback,  # a proxy cannot reach this machine's loopback
            headers={"User-Agent": policy.user_agent, "Accept-Encoding": "gzip"},
        )

    def get(self, url: str) -> Page:
        """The page at `url`. Raises CrawlError; 429 and 5xx are tried three times in all."""
        for attempt in range(_RETRIES):
            try:
                return self._follow(url)
            except _Again as again:
                if attempt == _RETRIES - 1:
                    raise again.error from again.__cause__
                wait_s = 0.5 * 2**attempt if again.wait_s is None else again.wait_s
                time.sleep(min(wait_s, _LONGEST_WAIT_S))
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _follow(self, url: str) -> Page:
        for _ in range(_REDIRECTS + 1):
            self.check_host(url)
            self._wait_turn()
            self.requests += 1
            try:
                with self._client.stream("GET", url) as response:
                    if not response.is_redirect:
                        return self._page(url, response)
                    url = urljoin(url, response.headers["location"])
            except httpx.HTTPError as error:
                raise _Again(_unreachable(url, error)) from error
        raise CrawlError(
            "http_status", url, f"more than {_REDIRECTS} redirects", "a page", "check the base URL"
        )

    def check_host(self, url: str) -> None:
        """Raises CrawlError before a packet is sent where the URL is not on the marketplace's own
        host, or its host resolves to a private address that the policy does not allow."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.netloc != self.host:
            raise CrawlError(
                "forbidden_host",
                url,
                f"a URL on {parts.netloc or parts.scheme!r}",
                f"one on {self.host}",
                "the marketplace must not send the crawler elsewhere; report the record",
            )
        if self.policy.allow_loopback and is_loopback(parts.hostname or ""):
            return
        for address in _resolve(url, parts.hostname or "", parts.port):
            if not ipaddress.ip_address(address).is_global:
                raise CrawlError(
                    "forbidden_host",
                    url,
                    f"a host at the private address {address}",
                    "a public address",
                    "only demo marketplaces may be on loopback (allow_loopback)",
                )

    def _page(self, url: str, response: httpx.Response) -> Page:
        status = response.status_code
        if status == 429 or status >= 500:
            raise _Again(_bad_status(url, status), _retry_after(response))
        if status != 200:
            raise _bad_status(url, status)
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return Page(url, content_type, self._body(url, response))

    def _body(self, url: str, response: httpx.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise CrawlError(
                "wrong_type", url, f"content encoding {encoding!r}", "gzip or none", "report it"
            )
        cap, body = self.policy.max_body_bytes, bytearray()
        inflate = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        try:
            for chunk in response.iter_raw():
                body += inflate.decompress(chunk, cap + 1 - len(body)) if inflate else chunk
                if len(body) > cap:
                    raise CrawlError(
                        "too_large",
                        url,
                        f"more than {cap:,} bytes",
                        f"at most {cap:,}",
                        "raise max_body_bytes if the marketplace is trusted",
                    )
        except zlib.error as error:
            raise CrawlError(
                "truncated", url, f"broken gzip ({error})", "gzip", "try later"
            ) from error
        return bytes(body)

    def _wait_turn(self) -> None:
        rate = self.policy.requests_per_second
        if rate <= 0:
            return
        now = time.monotonic()
        time.sleep(max(0.0, self._next_at - now))
        self._next_at = max(now, self._next_at) + 1 / rate


class _Again(Exception):
    """A failure that may pass: carries the error to raise when it does not."""

    def __init__(self, error: CrawlError, wait_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.wait_s = error, wait_s


def is_loopback(host: str) -> bool:
    """Whether a host name or address literal is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _resolve(url: str, host: str, port: int | None) -> set[str]:
    try:
        found: list[Any] = socket.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unreachable(url, error) from error
    return {str(entry[4][0]).split("%")[0] for entry in found}


def _unreachable(url: str, error: Exception) -> CrawlError:
    return CrawlError(
        "unreachable",
        url,
        f"{type(error).__name__}: {error}",
        "an answer",
        "check that the marketplace is up and the base URL right; last night's listings stay",
    )


def _bad_status(url: str, status: int) -> CrawlError:
    mend = {401: "it wants a key", 403: "it refuses crawlers", 429: "lower the request rate"}
    return CrawlError("http_status", url, f"status {status}", "200", mend.get(status, "try later"))


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdigit() else None
