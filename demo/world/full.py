"""Full: a world of as many servers as are wanted, and its second day."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any
from zlib import crc32

from demo.world.catalogue import DemoWorld, RecordList, check_day
from demo.world.record import (
    DATES,
    DemoServer,
    RecordInput,
    RecordPackage,
    RecordRemote,
    ServerRecord,
    revise_record,
)
from warehouse.storage.files import read_data

_WORDS = read_data(__file__, "words.toml")
_LISTS = ("adjectives", "nouns", "verbs", "owners", "tags")
_ADJECTIVES, _NOUNS, _VERBS, _OWNERS, TAGS = (_WORDS[name].split() for name in _LISTS)
_START = datetime(2024, 12, 1, tzinfo=UTC)
_LAST = datetime(2026, 11, 20, tzinfo=UTC)
_INPUTS = [RecordInput(**fields) for fields in _WORDS["inputs"]]
# Of 256 records: the rest are as they should be.
_ODD = dict(
    enumerate(["local_path"] * 8 + ["unpinned"] * 4 + ["multi"] * 2 + ["shell"] * 2 + ["malformed"])
)


def make_record(index: int) -> ServerRecord:
    """Record number `index` of an invented world; it depends on nothing else."""
    dice = blake2b(b"%d" % index, digest_size=16).digest()
    adjective = _ADJECTIVES[dice[0] % len(_ADJECTIVES)]
    noun = _NOUNS[dice[1] % len(_NOUNS)]
    slug = f"{noun}-{adjective}-{index}"
    author = index // 3  # three neighbours have one
    namespace = f"{_OWNERS[author % len(_OWNERS)]}{author}"
    created = _START + timedelta(minutes=7 * index)
    version = f"{dice[2] % 4}.{dice[3] % 20}.{dice[4] % 10}"
    title, tools = f"{adjective.title()} {noun.title()}", _list_tools(dice, noun)
    return ServerRecord(
        slug=slug,
        namespace=namespace,
        title=title,
        description=f"{title} number {index}: {', '.join(tools)} and more.",
        repository=f"https://github.com/{namespace}/{slug}" if dice[5] % 20 else None,
        version=version,
        inputs=_list_inputs(dice, noun),
        tools=tools,
        tags=(TAGS[dice[6] % len(TAGS)], TAGS[dice[7] % len(TAGS)]),
        created_at=_make_text(created),
        # Some time after it was made, before the demo's first day.
        revised_at=_make_text(created + (_LAST - created) * (dice[8] / 256)),
        schema=DATES[dice[9] % len(DATES)],
        odd=_ODD.get(dice[10]),
        **_make_launch(dice, slug, namespace, version),
    )


def _make_launch(dice: bytes, slug: str, namespace: str, version: str) -> dict[str, Any]:
    """The package or the remote, or neither."""
    kind = dice[11]
    if kind < 118:
        name = f"@{namespace}/{slug}" if dice[12] % 3 else slug
        return {"package": RecordPackage("npm", name, version)}
    if kind < 200:
        return {"package": RecordPackage("pypi", slug, version)}
    if kind < 211:
        return {"package": RecordPackage("oci", f"ghcr.io/{namespace}/{slug}", version)}
    if kind < 218:
        digest = blake2b(slug.encode(), digest_size=32).hexdigest()
        url = f"https://github.com/{namespace}/{slug}/releases/download/v{version}/{slug}.mcpb"
        return {"package": RecordPackage("mcpb", slug, version, url=url, sha256=digest)}
    if kind < 253:
        auth = ("none", "api_key", "oauth2")[dice[12] % 3]
        transport = "sse" if dice[13] % 8 == 0 else "streamable-http"
        return {"remote": RecordRemote(f"https://{slug}.mcp.example/mcp", transport, auth)}  # type: ignore[arg-type]
    return {}


def _list_inputs(dice: bytes, noun: str) -> tuple[RecordInput, ...]:
    count = (0, 0, 1, 1, 2, 3)[dice[14] % 6]
    chosen = [_INPUTS[(dice[15] + n) % len(_INPUTS)] for n in range(count)]
    prefix = noun.upper()
    return tuple(
        RecordInput(
            f"{prefix}_{item.name}", item.description, item.required, item.secret, item.default
        )
        for item in chosen
    )


def _list_tools(dice: bytes, noun: str) -> tuple[str, ...]:
    return tuple(f"{_VERBS[(dice[13] + n) % len(_VERBS)]}_{noun}" for n in range(1 + dice[12] % 8))


def _make_text(when: datetime) -> str:
    return f"{when.isoformat()[:19]}Z"


SERVERS = 1482  # as many as one marketplace listed in 2025
_SECOND_DAY = "2026-11-21"


_SHARE = 0.01  # of the first day's servers: so many are added, changed and taken down


@dataclass(frozen=True)
class FullWorld:
    """The first `count` of `records` on day one, the same on every marketplace; the others are what
    day two adds."""

    day: int
    count: int
    records: Sequence[ServerRecord] = field(repr=False)
    scale: str = "full"
    page: int | None = None
    servers: tuple[DemoServer, ...] = ()  # none of the demo's own

    def list_records(self, marketplace: str) -> RecordList:
        """Records of one marketplace, in its own words; made when it is first asked for."""
        if marketplace not in self._lists:
            self._lists[marketplace] = self._make_list(marketplace)
        return self._lists[marketplace]

    def is_gone(self, index: int) -> bool:
        return index < self.count and _is_chosen(index, 0)

    def is_changed(self, index: int) -> bool:
        return index < self.count and _is_chosen(index, 5_000) and not self.is_gone(index)

    @cached_property
    def _lists(self) -> dict[str, RecordList]:
        return {}

    def _make_list(self, marketplace: str) -> RecordList:
        records = [reword_record(record, marketplace) for record in self.records]
        if self.day == 1:
            return RecordList(records[: self.count])
        here, older = [], {}
        for index, record in enumerate(records):
            seconds = crc32(b"%d" % index) % 86_400
            when = f"{_SECOND_DAY}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
            if self.is_gone(index):
                continue
            if self.is_changed(index):
                older[record.slug] = (record,)
                here.append(revise_record(record, when))
            else:
                here.append(record if index < self.count else replace(record, revised_at=when))
        return RecordList(here, older)


def make_full_world(day: int = 1, servers: int | None = None) -> FullWorld:
    """A world of `servers` invented servers. Raises ValueError for a number below 1."""
    check_day(day)
    if servers is not None and servers < 1:
        raise ValueError(f"{servers} servers: expected at least 1")
    count = servers or SERVERS
    records = [make_record(index) for index in range(count + round(count * _SHARE))]
    return FullWorld(day, count, records)


def reword_record(record: ServerRecord, marketplace: str) -> ServerRecord:
    """The record as a marketplace words it: some spell its repository or its name otherwise. The
    registry is the reference."""
    if marketplace == "registry":
        return record
    dice = crc32(f"{marketplace}:{record.slug}".encode())
    changes = {}
    if record.repository and dice % 5 == 0:
        changes["repository"] = (
            f"{record.repository}.git",
            record.repository.replace("https://", "http://"),
            f"{record.repository}/",
        )[dice // 5 % 3]
    if dice % 7 == 0:
        changes["title"] = f"{record.title} MCP Server"
    if dice % 11 == 0:
        changes["description"] = record.description[:60]
    return replace(record, **changes) if changes else record


def _is_chosen(index: int, phase: int) -> bool:
    """Whether `index` is among an evenly spread `_SHARE` of all numbers, whatever their count."""
    steps = round(_SHARE * 10_000)
    return ((index + 1) * steps + phase) // 10_000 > (index * steps + phase) // 10_000


ReplicaWorld = DemoWorld | FullWorld  # what the replicas serve
