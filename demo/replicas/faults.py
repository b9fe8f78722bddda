"""Faults: which misbehaviours can be switched on, for which site."""

import gzip
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from starlette.requests import Request

from demo.replicas.reply import ReplicaReply, reply_html, reply_json
from demo.world.catalogue import MARKETPLACES, RecordList
from demo.world.record import ServerRecord
from warehouse.storage.files import read_data

SITES = (*MARKETPLACES, "files")

# kind -> (what it does, the value it has without one; "" for none)
KINDS: Mapping[str, tuple[str, str]] = read_data(__file__, "faults.toml")
_NUMBERS = frozenset(
    ["gzip_bomb", "huge_description", "storm429", "rate_limit", "crawl_delay", "skew", "latency"]
)


def check_faults(faults: Mapping[str, str]) -> dict[str, str]:
    """The faults, if every site, kind and value exists. Raises ValueError."""
    for site, text in faults.items():
        if site not in SITES:
            raise _make_unknown(site, text)
        parse_switches(site, text)
    return dict(faults)


def parse_switches(site: str, text: str | None) -> dict[str, str]:
    """kind -> value of one site's faults. Raises ValueError."""
    result: dict[str, str] = {}
    for part in (text or "").split("+") if text is not None else ():
        kind, _, value = (piece.strip() for piece in part.partition(":"))
        if kind not in KINDS:
            raise _make_unknown(site, part)
        result[kind] = value or KINDS[kind][1]
        if kind in _NUMBERS and not _is_positive(result[kind]):
            raise ValueError(f"fault {site}={kind}:{value}: expected a number above 0")
        if kind == "error500" and value and not value.isdecimal():
            raise ValueError(f"fault {site}={kind}:{value}: expected a whole number")
    return result


def _make_unknown(site: str, text: str) -> ValueError:
    return ValueError(
        f"fault {site}={text} does not exist; sites: {', '.join(SITES)}; kinds: {', '.join(KINDS)}"
    )


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < 1e9
    except ValueError:
        return False


MARK = "\ue000"  # becomes bytes that are not UTF-8 once the answer is encoded
_LONG = "All work and no play. "
OF_RECORDS = frozenset(
    ["empty", "duplicates", "huge_description", "bad_utf8", "hidden_text", "layout", "skew"]
)


def apply_record_faults(records: RecordList, faults: Mapping[str, str]) -> RecordList:
    """The records as these faults show them."""
    if not OF_RECORDS & faults.keys():
        return records
    changed = [] if "empty" in faults else [_change_record(record, faults) for record in records]
    if changed and "huge_description" in faults:
        size = int(float(faults["huge_description"]) * 1e6 / 22)
        changed[0] = _change_record(replace(records[0], description=_LONG * size), faults)
    if "duplicates" in faults:
        changed += changed[: -(-len(changed) // 10)]
    older = {
        slug: tuple(_change_record(version, faults) for version in versions)
        for slug, versions in records.older.items()
    }
    return RecordList(changed, older)


def _change_record(record: ServerRecord, faults: Mapping[str, str]) -> ServerRecord:
    title, description, revised_at = record.title, record.description, record.revised_at
    if "hidden_text" in faults:
        title = f"\u202e{title[:1]}\u200b{title[1:]}\u202c\ufeff"
        description = f"\u2066{description}\u2069\u200d"
    if "bad_utf8" in faults:
        title, description = title + MARK, MARK + description
    if "skew" in faults:
        revised_at = f"{int(revised_at[:4]) + int(float(faults['skew']))}{revised_at[4:]}"
    record = replace(record, title=title, description=description, revised_at=revised_at)
    if "layout" in faults:
        record = replace(record, package=None, remote=None, odd=None)
    return record


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

    def reply_instead(self, request: Request) -> ReplicaReply | None:
        """The answer in place of the site's own, if a fault gives one."""
        if self._is_limited():
            return reply_json({"error": "Too Many Requests"}, 429, headers={"retry-after": "1"})
        if self._errors > 0:
            self._errors -= 1
            return reply_json({"error": "Internal Server Error"}, 500)
        if self.is_on("redirect_private"):
            return ReplicaReply(b"", status=302, headers={"location": PRIVATE})
        if self.is_on("redirect_away"):
            return ReplicaReply(b"", status=302, headers={"location": AWAY + request.url.path})
        if self.is_on("html"):  # what a protective proxy says in place of the data
            return reply_html(
                "<!doctype html><html><head><title>Just a moment...</title></head>"
                "<body><p>Checking your browser.</p></body></html>"
            )
        return None

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


def make_robots(text: str | None, fault_set: FaultSet) -> str | None:
    """The site's robots.txt with what the faults add to it."""
    if not fault_set.is_on("robots_disallow") and not fault_set.is_on("crawl_delay"):
        return text
    lines = ["User-agent: *"]
    if path := fault_set.get_value("robots_disallow"):
        lines.append(f"Disallow: {path}")
    if delay := fault_set.get_value("crawl_delay"):
        lines.append(f"Crawl-delay: {delay}")
    rules = [line for line in (text or "").splitlines() if not line.startswith("User-agent")]
    return "\n".join([*lines, *rules]) + "\n"


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
