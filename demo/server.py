"""Server: replica marketplaces for the time of a block or until interrupted."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from demo.ports import HOST, bind, list_ports, release, reserve
from demo.replicas.faults import SITES, FaultSet, check_faults
from demo.sites import REPLICAS
from demo.world.catalogue import make_world
from demo.world.full import ReplicaWorld, make_full_world


class Replicas(Mapping[str, str]):
    """Running replicas. As a mapping: site -> base URL. `servers`: of the scale `full`; `sites`:
    which to serve."""

    def __init__(
        self,
        day: int = 1,
        scale: str = "standard",
        faults: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
        *,
        servers: int | None = None,
        sites: Iterable[str] | None = None,
    ) -> None:
        names = SITES if sites is None else tuple(sites)
        unknown = [site for site in names if site not in SITES]
        if unknown:
            raise ValueError(f"site {unknown[0]!r} does not exist; there are {', '.join(SITES)}")
        self._sites = tuple(site for site in SITES if site in names)
        self._fault_sets = self._make_fault_sets(faults or {})
        self._counts: dict[str, Counter[str]] = {site: Counter() for site in self._sites}
        self._held = reserve({site: (ports or {}).get(site, 0) for site in self._sites})
        self._ports = {site: sock.getsockname()[1] for site, sock in self._held.items()}
        self._servers = servers
        self._world: ReplicaWorld = self._make_world(day, scale)
        self._running: dict[str, tuple[uvicorn.Server, Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __getitem__(self, site: str) -> str:
        return f"http://{HOST}:{self._ports[site]}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def start(self) -> "Replicas":
        """Starts every site that is not to be down; returns when each accepts connections."""
        self._thread.start()
        self._wait_for(self._apply())
        return self

    def stop(self) -> None:
        """Stops all sites; their ports are free afterwards."""
        self._wait_for(self._halt_sites(list(self._running)))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        release(self._held)

    def switch(
        self,
        *,
        day: int | None = None,
        scale: str | None = None,
        faults: Mapping[str, str] | None = None,
        servers: int | None = None,
        world: ReplicaWorld | None = None,
    ) -> None:
        """Changes the day, the scale, all faults, or the servers of a full world while running, or
        the world to one that was made elsewhere; the addresses stay."""
        if faults is not None:
            self._fault_sets = self._make_fault_sets(faults)
        self._servers = servers or self._servers
        self._world = world or self._make_world(day or self._world.day, scale or self._world.scale)
        self._wait_for(self._apply())

    @property
    def world(self) -> ReplicaWorld:
        return self._world

    def count_by_kind(self, site: str | None = None) -> dict[str, int]:
        """Requests answered since the start: per path's kind, of one site or of all."""
        counts = [self._counts[site]] if site else list(self._counts.values())
        return dict(sum(counts, Counter()))

    def _make_fault_sets(self, faults: Mapping[str, str]) -> dict[str, FaultSet]:
        checked = check_faults(faults)
        return {site: FaultSet(site, checked.get(site)) for site in self._sites}

    def _make_world(self, day: int, scale: str) -> ReplicaWorld:
        if scale == "full":
            return make_full_world(day, self._servers)
        return make_world(day, scale, self["files"] if "files" in self._sites else "")

    def _make_app(self, site: str) -> Any:
        replica = REPLICAS[site](lambda: self._world, lambda: self._fault_sets[site])
        routes = [Route("/_stats", self._make_stats_route(site)), *replica.list_all_routes()]
        return _CountingServer(Starlette(routes=routes), self._counts[site])

    def _make_stats_route(self, site: str) -> Callable[[Request], Any]:
        async def stats(_: Request) -> JSONResponse:
            by_kind = self.count_by_kind(site)
            return JSONResponse({"site": site, "total": sum(by_kind.values()), "by_kind": by_kind})

        return stats

    async def _apply(self) -> None:
        down = {site for site, fault_set in self._fault_sets.items() if fault_set.is_on("down")}
        await self._halt_sites([site for site in self._running if site in down])
        for site in self._sites:
            if site not in down and site not in self._running:
                await self._launch_site(site)

    async def _launch_site(self, site: str) -> None:
        config = uvicorn.Config(
            self._make_app(site), log_level="error", lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        task = self._loop.create_task(server.serve([bind(self._ports[site])]))
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        self._running[site] = (server, task)

    async def _halt_sites(self, sites: list[str]) -> None:
        for site in sites:
            self._running[site][0].should_exit = True
        for site in sites:
            await self._running.pop(site)[1]

    def _wait_for(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)


class _CountingServer:
    """Counts requests by the first segment of their path."""

    def __init__(self, app: Any, counts: Counter[str]) -> None:
        self.app, self.counts = app, counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = scope.get("path", "/").strip("/").split("/")[0] or "home"
        if kind != "_stats":
            self.counts[kind] += 1
        await self.app(scope, receive, send)


@contextmanager
def replicas(*args: Any, **options: Any) -> Iterator[Replicas]:
    """Replica marketplaces while the block runs, by name the base URL; ports are ephemeral unless
    given. The arguments are those of Replicas."""
    running = Replicas(*args, **options).start()
    try:
        yield running
    finally:
        running.stop()


def serve(
    *,
    ports: Mapping[str, int] | None = None,
    ready: Callable[[dict[str, str]], None] | None = None,
    until: threading.Event | None = None,
    **options: Any,
) -> None:
    """Serves until interrupted (or until `until` is set), at `ports` or those of `list_ports`; a
    port of 0 is chosen by the system. `options` are those of Replicas.

    `ready` is called with {site: URL} once all sites answer. Raises PortTaken.
    """
    with replicas(ports=ports or list_ports(), **options) as running:
        urls = dict(running)
        if ready is not None:
            ready(urls)
        with suppress(KeyboardInterrupt):
            (until or threading.Event()).wait()
