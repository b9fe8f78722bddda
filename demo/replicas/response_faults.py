"""One site's faults while they are on, with what they have to remember."""

import gzip
import time
import zlib
from functools import cache

from starlette.requests import Request

from demo.replicas.faults import parse_switches
from demo.replicas.reply import Reply, reply_html, reply_json

PRIVATE = "http://169.254.169.254/latest/meta-data/"  # only ever written into a Location header
AWAY = "https://elsewhere.invalid"


class FaultSet:
    """The faults of one site since they were switched on."""

    def __init__(self, site: str, text: str | None) -> None:
        self.kinds = parse_switches(site, text)
        self.delay_s = float(self.kinds.get("latency", 0)) / 1000
        self._storm = int(float(self.kinds.get("storm429", 0)))
        errors = self.kinds.get("error500", "0")
        self._errors = float("inf") if errors == "always" else int(errors)
        self._rate = float(self.kinds.get("rate_limit", 0))
        self._tokens, self._at = max(self._rate, 1.0), time.monotonic()

    def is_on(self, kind: str) -> bool:
        return kind in self.kinds

    def get_value(self, kind: str) -> str | None:
        return self.kinds.get(kind)

    def reply_instead(self, request: Request) -> Reply | None:
        """The answer in place of the site's own, if a fault gives one."""
        if self._is_limited():
            return reply_json({"error": "Too Many Requests"}, 429, headers={"retry-after": "1"})
        if self._errors > 0:
            self._errors -= 1
            return reply_json({"error": "Internal Server Error"}, 500)
        if self.is_on("redirect_private"):
            return Reply(b"", status=302, headers={"location": PRIVATE})
        if self.is_on("redirect_away"):
            return Reply(b"", status=302, headers={"location": AWAY + request.url.path})
        return make_interstitial() if self.is_on("html") else None

    def pack_body(self, body: bytes) -> bytes | None:
        """The body as a compressed one that does harm, if a fault wants it."""
        if self.is_on("gzip_bomb"):
            return make_bomb(int(float(self.kinds["gzip_bomb"])))
        if not self.is_on("broken_gzip"):
            return None
        whole = bytearray(gzip.compress(body, mtime=0))
        for place in range(len(whole) // 2, len(whole)):
            whole[place] ^= 0xFF
        return bytes(whole)

    def _is_limited(self) -> bool:
        if self._storm > 0:
            self._storm -= 1
            return True
        if not self._rate:
            return False
        now = time.monotonic()
        self._tokens = min(max(self._rate, 1.0), self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return True
        self._tokens -= 1
        return False


def make_interstitial() -> Reply:
    """What a protective proxy says in place of the data, with status 200."""
    return reply_html(
        "<!doctype html><html><head><title>Just a moment...</title></head>"
        "<body><p>Checking your browser.</p></body></html>"
    )


def make_robots(own: str | None, fault_set: FaultSet) -> str | None:
    """The site's robots.txt with what the faults add to it."""
    if not fault_set.is_on("robots_disallow") and not fault_set.is_on("crawl_delay"):
        return own
    lines = ["User-agent: *"]
    if path := fault_set.get_value("robots_disallow"):
        lines.append(f"Disallow: {path}")
    if delay := fault_set.get_value("crawl_delay"):
        lines.append(f"Crawl-delay: {delay}")
    kept = [line for line in (own or "").splitlines() if not line.startswith("User-agent")]
    return "\n".join([*lines, *kept]) + "\n"


@cache
def make_bomb(mebibytes: int) -> bytes:
    """A gzip body of a thousandth of what it unpacks to: one compressed block, over and over."""
    zeros = bytes(1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(mebibytes):
        check = zlib.crc32(zeros, check)
    head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    tail = check.to_bytes(4, "little") + (mebibytes << 20 & 0xFFFFFFFF).to_bytes(4, "little")
    return head + block * mebibytes + b"\x03\x00" + tail
