"""Site: what every replica does alike: faults of answers, keys, robots.txt."""

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from demo.replicas.faults import MARK, FaultSet, apply_record_faults, make_robots
from demo.replicas.reply import ReplicaReply, reply_json
from demo.world.catalogue import RecordList
from demo.world.full import ReplicaWorld

Handler = Callable[[Request], Any]  # gives a Reply, or an awaitable of one


class ReplicaSite(ABC):
    """One replica over a world and faults that may change between requests."""

    name: ClassVar[str]
    robots: ClassVar[str | None] = None  # the text of robots.txt; None: there is none (404)
    _listed: tuple[ReplicaWorld, FaultSet, RecordList] | None = None

    def __init__(
        self, world: Callable[[], ReplicaWorld], fault_set: Callable[[], FaultSet]
    ) -> None:
        self.world, self.fault_set = world, fault_set

    @abstractmethod
    def list_routes(self) -> Sequence[Route]:
        """Everything the site answers, robots.txt aside."""

    def list_all_routes(self) -> list[Route]:
        return [Route("/robots.txt", self._serve_robots), *self.list_routes()]

    def refuse_request(self, request: Request) -> ReplicaReply | None:
        """The answer to a request without the key, where the site wants one."""
        if self.fault_set().is_on("wrong_key"):
            return reply_json({"error": "unauthorized"}, 401)
        return None

    def make_route(
        self, path: str, handler: Handler, method: str = "GET", keyed: bool = True
    ) -> Route:
        """A route whose answers pass through the faults; unless `keyed`, no key is asked for."""

        async def endpoint(request: Request) -> Response:
            fault_set = self.fault_set()
            if fault_set.delay_s:
                await asyncio.sleep(fault_set.delay_s)
            early = fault_set.reply_instead(request) or (
                self.refuse_request(request) if keyed else None
            )
            answer = early or handler(request)
            reply = _damage_reply(
                await answer if inspect.isawaitable(answer) else answer, fault_set
            )
            return reply.make_response(request, validators=not fault_set.is_on("no_validators"))

        return Route(path, endpoint, methods=[method])

    def list_records(self) -> RecordList:
        """What this marketplace lists now, changed by the faults that touch records."""
        world, fault_set = self.world(), self.fault_set()
        if self._listed is None or self._listed[0] is not world or self._listed[1] is not fault_set:
            records = apply_record_faults(world.list_records(self.name), fault_set.kinds)
            self._listed = world, fault_set, records
        return self._listed[2]

    def name_member(self, name: str) -> str:
        """The member that a list stands under."""
        return f"{name}_v2" if self.fault_set().is_on("missing_key") else name

    def limit_page_size(self, asked: int) -> int:
        """How many records a page holds: what was asked for, in a small world less."""
        return min(asked, self.world().page or asked)

    async def _serve_robots(self, request: Request) -> Response:
        fault_set = self.fault_set()
        if fault_set.delay_s:
            await asyncio.sleep(fault_set.delay_s)
        text = make_robots(self.robots, fault_set)
        if text is None:
            return Response("not found", 404, media_type="text/plain")
        return Response(text, media_type="text/plain")


def _damage_reply(reply: ReplicaReply, fault_set: FaultSet) -> ReplicaReply:
    """The reply after the faults that damage bytes."""
    if reply.status != 200 or not fault_set.kinds:
        return reply
    body, headers = reply.body, dict(reply.headers)
    if fault_set.is_on("bad_utf8"):
        body = body.replace(MARK.encode(), b"\xff\xc3\x28")
    if fault_set.is_on("truncated") and reply.last:
        body = body[: len(body) // 2]
    if fault_set.get_value("empty") == "body":
        body = b""
    if packed := fault_set.pack_body(body):
        body = packed
        headers["content-encoding"] = "gzip"
    return replace(reply, body=body, headers=headers)
