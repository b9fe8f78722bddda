"""Envelope: the registry's list API, which PulseMCP has too."""

from abc import abstractmethod
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request

from demo.replicas.reply import Reply, in_json
from demo.replicas.site import Site
from demo.sites.serverjson import server_json
from demo.world.listing_page import RecordList
from demo.world.record import Record

Version = tuple[Record, bool]  # a version of a server, and whether it is the latest


class Envelope(Site):
    """`/v0.1/servers` and what is below it. A record there is one version of one server."""

    @abstractmethod
    def meta(self, record: Record, latest: bool) -> dict[str, Any]:
        """The `_meta` beside server.json."""

    @abstractmethod
    def error(self, status: int, text: str) -> Reply:
        """An error as this API words it."""

    def wrap(self, record: Record, latest: bool) -> dict[str, Any]:
        return {"server": server_json(record), "_meta": self.meta(record, latest)}

    def list_servers(self, request: Request) -> Reply:
        query = request.query_params
        limit = query.get("limit", "30")
        if not limit.isdecimal() or not 1 <= int(limit) <= 100:
            return self.error(422, "Unprocessable Entity")
        try:
            since = _time(query["updated_since"]) if "updated_since" in query else None
        except ValueError:
            return self.error(422, "Unprocessable Entity")
        asked = query.get("cursor")
        found = self._matching(query, since, asked)
        page = list(islice(found, self.page_size(int(limit))))
        last = next(found, None) is None
        metadata: dict[str, Any] = {"count": len(page)}
        if self.fault_set().on("cursor_loop") and page:
            metadata["nextCursor"] = asked or _cursor(page[-1][0])
        elif not last:
            metadata["nextCursor"] = _cursor(page[-1][0])
        body = {self.key("servers"): [self.wrap(*one) for one in page], "metadata": metadata}
        return in_json(body, last=last, validators=True)

    def list_versions(self, request: Request) -> Reply:
        found = self._named(request.path_params["name"])
        if not found:
            return self.error(404, "Server not found")
        wrapped = [self.wrap(*one) for one in found]
        return in_json({"servers": wrapped, "metadata": {"count": len(found)}})

    def one_version(self, request: Request) -> Reply:
        wanted = request.path_params["version"]
        for record, latest in self._named(request.path_params["name"]):
            if record.version == wanted or (wanted == "latest" and latest):
                return in_json(self.wrap(record, latest))
        return self.error(404, "Server not found")

    def _matching(
        self, query: QueryParams, since: datetime | None, cursor: str | None
    ) -> Iterator[Version]:
        records, wanted, search = (
            self.records(),
            query.get("version"),
            query.get("search", "").lower(),
        )
        deleted = since is not None or query.get("include_deleted") == "true"
        for record, latest in self._after(records, cursor, deleted, since):
            if wanted and not (latest if wanted == "latest" else record.version == wanted):
                continue
            if since and _time(record.revised_at) < since:
                continue
            if search in record.registry_name.lower():
                yield record, latest

    def _after(
        self, records: RecordList, cursor: str | None, deleted: bool, since: datetime | None
    ) -> Iterator[Version]:
        """All versions after a cursor: the oldest first within a name, deleted ones at the end,
        and what comes twice. A cursor that nobody gave starts from the beginning."""
        slug, taken_down = _read(cursor)
        start = 0 if slug is None else records.position(slug)
        if slug is not None and start is None and not taken_down:
            start, slug = 0, None
        waiting = slug is not None
        for record, latest in self._all(records, start or 0, deleted, since, taken_down):
            if waiting:
                waiting = _cursor(record) != cursor
            else:
                yield record, latest

    def _all(
        self,
        records: RecordList,
        start: int,
        deleted: bool,
        since: datetime | None,
        taken_down: bool,
    ) -> Iterator[Version]:
        for position in range(start, len(records)) if not taken_down else ():
            # Most records are not asked for; their time is cheaper than they are.
            if since and _time(records.revised_at(position)) < since:
                continue
            record = records[position]
            yield from ((older, False) for older in records.older(record))
            yield record, True
        if deleted:
            yield from ((record, True) for record in records.gone())
        if twice := self._twice(records):
            yield twice, True

    def _twice(self, records: RecordList) -> Record | None:
        """A record that comes twice, as real lists have it."""
        return None

    def _named(self, name: str) -> list[Version]:
        records = self.records()
        record = records.find(name.rpartition("/")[2])
        if record is not None and record.registry_name == name:
            return [*((older, False) for older in records.older(record)), (record, True)]
        return [(one, True) for one in records.gone() if one.registry_name == name]


def _cursor(record: Record) -> str:
    return f"{record.registry_name}:{record.version}" + (":deleted" if record.deleted else "")


def _read(cursor: str | None) -> tuple[str | None, bool]:
    """(the slug a cursor names, whether its record is deleted)."""
    if not cursor or "/" not in cursor:
        return None, False
    name, _, rest = cursor.partition(":")
    return name.rpartition("/")[2], rest.endswith(":deleted")


def _time(text: str) -> datetime:
    """An RFC 3339 time. Raises ValueError."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return when
