"""Catalogue: which servers the replica marketplaces list, on which day and at which scale."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from demo.world.record import (
    DATES,
    DemoServer,
    RecordPackage,
    RecordRemote,
    ServerRecord,
    load_other_marketplaces,
    load_servers,
)

FOLDER = Path(__file__).parents[1] / "bundles"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: the same bytes every time


@dataclass(frozen=True)
class McpbBundle:
    """A packed server: file name, bytes and their SHA-256 in hex."""

    name: str
    data: bytes
    sha256: str


@cache
def pack(name: str, version: str) -> McpbBundle:
    """The bundle `demo/bundles/<name>` at a version; its server reads it from the manifest."""
    folder = FOLDER / name
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["version"] = version
    files = {
        "manifest.json": json.dumps(manifest, indent=2).encode(),
        "server.py": (folder / "server.py").read_bytes(),
        "stdio.py": (FOLDER / "_shared" / "stdio.py").read_bytes(),
    }
    buffer = io.BytesIO()
    # Stored, not deflated: zlib's output differs between its versions, and so would the digest.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[path])
    data = buffer.getvalue()
    return McpbBundle(f"{name}.mcpb", data, sha256(data).hexdigest())


class RecordList(Sequence[ServerRecord]):
    """Records by position; `older` holds earlier versions by slug, the oldest first."""

    def __init__(
        self,
        records: Sequence[ServerRecord],
        older: Mapping[str, tuple[ServerRecord, ...]] | None = None,
    ) -> None:
        self._records, self.older = records, older or {}
        # The first of those that come twice counts.
        self._positions = {record.slug: n for n, record in reversed(list(enumerate(records)))}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, position: Any) -> Any:
        return self._records[position]

    def find_position(self, slug: str) -> int | None:
        """Where the record with this slug stands."""
        return self._positions.get(slug)

    def find(self, slug: str) -> ServerRecord | None:
        """The record with this slug."""
        position = self.find_position(slug)
        return None if position is None else self[position]


SERVERS = load_servers()
OTHER_MARKETPLACES = load_other_marketplaces()
SCALES = ("small", "standard", "large", "full")
MARKETPLACES = ("registry", "mcpso", *OTHER_MARKETPLACES)


@dataclass(frozen=True)
class DemoWorld:
    """A small world. `files_url` is where bundles are served; `page` caps the pages of lists, so
    that there are several."""

    day: int
    scale: str
    files_url: str = ""
    servers: tuple[DemoServer, ...] = field(default=())
    page: int | None = 5

    def list_records(self, marketplace: str) -> RecordList:
        """Records of one marketplace, by name."""
        return self._shelves[marketplace]

    def find_bundle(self, server: DemoServer) -> McpbBundle:
        return pack(server.identifier, server.find_version(self.day))

    def make_bundle_url(self, server: DemoServer) -> str:
        return f"{self.files_url}/bundles/{server.identifier}.mcpb"

    def find_revised_at(self, server: DemoServer) -> str:
        return server.find_revised_at(self.day, self.scale)

    @cached_property
    def _shelves(self) -> Mapping[str, RecordList]:
        return {name: self._list_own_records(name) for name in MARKETPLACES}

    def _list_own_records(self, marketplace: str) -> RecordList:
        if marketplace in OTHER_MARKETPLACES:
            return RecordList(self._list_retold(marketplace))
        here = sorted(
            (server for server in self.servers if marketplace in server.on),
            key=lambda server: server.registry_name,
        )
        older = {
            server.slug: tuple(self._record(server, day) for day in days[:-1])
            for server in here
            if len(days := [day for day in sorted(server.versions) if day <= self.day]) > 1
        }
        return RecordList([self._record(server) for server in here], older)

    def _list_retold(self, marketplace: str) -> list[ServerRecord]:
        """What the other marketplaces list; nothing at the small scale."""
        if self.scale == "small":
            return []
        here = {server.slug: server for server in self.servers}
        return [
            replace(self._record(here[slug]), **changes)
            for slug, changes in OTHER_MARKETPLACES[marketplace]
            if slug in here
        ]

    def _record(self, server: DemoServer, day: int | None = None) -> ServerRecord:
        day = day or self.day
        return ServerRecord(
            slug=server.slug,
            namespace=server.repository.removeprefix("https://github.com/").split("/")[0],
            title=server.title,
            description=server.description,
            repository=server.repository,
            version=server.find_version(day),
            package=self._make_package(server, day),
            remote=RecordRemote(f"{self.files_url}/mcp") if server.kind == "remote" else None,
            inputs=server.env,
            args=server.args,
            tags=("demo", server.kind),
            revised_at=server.find_revised_at(day, self.scale),
            schema=DATES[SERVERS.index(server) % len(DATES)],
            odd=server.odd,
        )

    def _make_package(self, server: DemoServer, day: int) -> RecordPackage | None:
        if server.kind in ("none", "remote"):
            return None
        bundle: dict[str, Any] = {}
        if server.kind == "mcpb":
            bundle = {
                "url": self.make_bundle_url(server),
                "sha256": self.find_bundle(server).sha256,
            }
        return RecordPackage(server.kind, server.identifier, server.find_version(day), **bundle)


def make_world(day: int = 1, scale: str = "standard", files_url: str = "") -> DemoWorld:
    """A world of the demo's own servers. Raises ValueError for a day or scale that does not
    exist."""
    check_day(day)
    if scale not in SCALES[:-1]:
        raise ValueError(f"scale {scale!r} does not exist; there are {', '.join(SCALES)}")
    servers = tuple(s for s in SERVERS if scale in s.scales and day in s.days)
    return DemoWorld(day, scale, files_url, servers)


def check_day(day: int) -> int:
    """The day, if it exists. Raises ValueError."""
    if day not in (1, 2):
        raise ValueError(f"day {day} does not exist; the demo has days 1 and 2")
    return day


def list_sites(scale: str) -> tuple[str, ...]:
    """The marketplaces that list something at a scale; the others serve empty lists."""
    return ("registry", "mcpso") if scale == "small" else MARKETPLACES
