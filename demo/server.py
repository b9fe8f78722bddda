"""Server: the replica marketplaces over real HTTP on loopback.

What belongs here: three sites (registry, website, files with the bundles), each on a port of its
own so that one can be down alone; counting requests; switching day and faults while running.
What does not: what they answer (`registry.py`, `website.py`, `faults.py`).
"""

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from demo.catalogue import World, world
from demo.faults import SITES, checked
from demo.registry import Registry
from demo.website import Website

HOST = "127.0.0.1"
PORTS = {"registry": 8931, "mcpso": 8932}


class PortTaken(RuntimeError):
    """A port is in use; the message names it and the mend."""


class Replicas(Mapping[str, str]):
    """Running replicas. As a mapping: site -> base URL (registry, mcpso, files)."""

    def __init__(
        self,
        day: int = 1,
        scale: str = "standard",
        faults: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self._faults = checked(faults or {})
        self._counts: dict[str, Counter[str]] = {site: Counter() for site in SITES}
        self._ports = {site: _free_port((ports or {}).get(site, 0)) for site in SITES}
        self._world = world(day, scale, self["files"])
        self._running: dict[str, tuple[uvicorn.Server, Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __getitem__(self, site: str) -> str:
        return f"http://{HOST}:{self._ports[site]}"

    def __iter__(self) -> Iterator[str]:
        return iter(SITES)

    def __len__(self) -> int:
        return len(SITES)

    def start(self) -> "Replicas":
        """Starts every site that is not to be down; returns when each accepts connections."""
        self._thread.start()
        self._wait(self._apply())
        return self

    def stop(self) -> None:
        """Stops all sites; their ports are free afterwards."""
        self._wait(self._halt(list(self._running)))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def switch(
        self,
        *,
        day: int | None = None,
        scale: str | None = None,
        faults: Mapping[str, str] | None = None,
    ) -> None:
        """Changes the day, the scale or all faults while running; the addresses stay."""
        if faults is not None:
            self._faults = checked(faults)
        self._world = world(
            day or self._world.day, scale or self._world.scale, self._world.files_url
        )
        self._wait(self._apply())

    @property
    def world(self) -> World:
        return self._world

    def stats(self, site: str | None = None) -> dict[str, int]:
        """Requests answered since the start: per path's kind, of one site or of all."""
        counts = [self._counts[site]] if site else list(self._counts.values())
        return dict(sum(counts, Counter()))

    def requests(self, site: str | None = None) -> int:
        """Number of requests answered since the start, without `/_stats`."""
        return sum(self.stats(site).values())

    def _app(self, site: str) -> Any:
        def fault() -> str | None:
            return self._faults.get(site)

        routes = [Route("/_stats", self._stats_route(site))]
        if site == "registry":
            routes += Registry(lambda: self._world, fault).routes()
        elif site == "mcpso":
            routes += Website(lambda: self._world, fault).routes()
        else:
            routes.append(Route("/bundles/{name}", self._bundle))
        return _Counting(Starlette(routes=routes), self._counts[site])

    def _stats_route(self, site: str) -> Callable[[Request], Response]:
        return lambda _: JSONResponse(
            {"site": site, "total": self.requests(site), "by_kind": self.stats(site)}
        )

    def _bundle(self, request: Request) -> Response:
        name = request.path_params["name"].removesuffix(".mcpb")
        for server in self._world.servers:
            if server.kind == "mcpb" and server.identifier == name:
                return Response(self._world.bundle(server).data, media_type="application/zip")
        return PlainTextResponse("not found", 404)

    async def _apply(self) -> None:
        down = {site for site, kind in self._faults.items() if kind == "down"}
        await self._halt([site for site in self._running if site in down])
        for site in SITES:
            if site not in down and site not in self._running:
                await self._launch(site)

    async def _launch(self, site: str) -> None:
        config = uvicorn.Config(
            self._app(site), log_level="error", lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = self._loop.create_task(server.serve([_bind(self._ports[site])]))
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        self._running[site] = (server, task)

    async def _halt(self, sites: list[str]) -> None:
        for site in sites:
            self._running[site][0].should_exit = True
        for site in sites:
            await self._running.pop(site)[1]

    def _wait(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)


class _Counting:
    """Counts requests by the first segment of their path."""

    def __init__(self, app: Any, counts: Counter[str]) -> None:
        self.app, self.counts = app, counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = scope.get("path", "/").strip("/").split("/")[0] or "home"
        if kind != "_stats":
            self.counts[kind] += 1
        await self.app(scope, receive, send)


@contextmanager
def replicas(
    day: int = 1,
    scale: str = "standard",
    faults: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
) -> Iterator[Replicas]:
    """Replica marketplaces while the block runs: `urls["registry"]`, `urls["mcpso"]`,
    `urls["files"]`; ports are ephemeral unless given."""
    running = Replicas(day, scale, faults, ports).start()
    try:
        yield running
    finally:
        running.stop()


def already_up(ports: Mapping[str, int]) -> dict[str, int]:
    """Which of these sites a replica of ours serves already: site -> port."""
    return {site: port for site, port in ports.items() if _serves(site, port)}


def serve(
    *,
    day: int = 1,
    scale: str = "standard",
    faults: Mapping[str, str] | None = None,
    registry_port: int = PORTS["registry"],
    mcpso_port: int = PORTS["mcpso"],
    files_port: int | None = None,
    port_file: Path | None = None,
    ready: Callable[[dict[str, str]], None] | None = None,
    until: threading.Event | None = None,
) -> None:
    """Serves until interrupted (or until `until` is set). A port of 0 is chosen by the system.

    `port_file` receives {"registry": URL, "mcpso": URL, "files": URL} once all sites answer, and
    `ready` is called with the same. Raises PortTaken.
    """
    beside = mcpso_port + 1 if mcpso_port else 0
    files = files_port if files_port is not None else beside
    ports = {"registry": registry_port, "mcpso": mcpso_port, "files": files}
    with replicas(day, scale, faults, ports) as running:
        urls = dict(running)
        if port_file is not None:
            partial = port_file.with_name(port_file.name + ".part")
            partial.write_text(json.dumps(urls), encoding="utf-8")
            partial.replace(port_file)
        if ready is not None:
            ready(urls)
        try:
            (until or threading.Event()).wait()
        except KeyboardInterrupt:
            pass


def _serves(site: str, port: int) -> bool:
    try:
        answer = httpx.get(f"http://{HOST}:{port}/_stats", timeout=2.0, trust_env=False)
        return answer.status_code == 200 and answer.json().get("site") == site
    except (httpx.HTTPError, ValueError):
        return False


def _free_port(port: int) -> int:
    """`port` if it can be bound, or one the system chooses for 0."""
    sock = _bind(port)
    try:
        return sock.getsockname()[1]
    finally:
        sock.close()


def _bind(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except OSError as error:
        sock.close()
        raise PortTaken(
            f"port {port} on {HOST} is taken ({error.strerror}); end the other program, or set"
            " TOOLMILL_DEMO__REGISTRY_PORT / TOOLMILL_DEMO__MCPSO_PORT"
        ) from error
    return sock
