"""Server: replica marketplaces for the time of a block or until interrupted."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.replicas.ports import HOST, PORTS, PortTaken, already_up
from demo.replicas.running import Replicas
from demo.world.full import Shares

__all__ = ["HOST", "PORTS", "PortTaken", "Replicas", "already_up", "replicas", "serve"]


@contextmanager
def replicas(
    day: int = 1,
    scale: str = "standard",
    faults: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
    *,
    servers: int | None = None,
    data: Path | None = None,
    sites: Iterable[str] | None = None,
    shares: Shares | None = None,
) -> Iterator[Replicas]:
    """Replica marketplaces while the block runs, by name the base URL; ports are ephemeral unless
    given. `servers`, `data` and `shares` are of the scale `full`; `sites`: which to serve."""
    size: dict[str, Any] = {"servers": servers, "data": data, "shares": shares}
    running = Replicas(day, scale, faults, ports, sites=sites, **size).start()
    try:
        yield running
    finally:
        running.stop()


def serve(
    *,
    day: int = 1,
    scale: str = "standard",
    faults: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
    servers: int | None = None,
    data: Path | None = None,
    sites: Iterable[str] | None = None,
    shares: Shares | None = None,
    port_file: Path | None = None,
    ready: Callable[[dict[str, str]], None] | None = None,
    until: threading.Event | None = None,
) -> None:
    """Serves until interrupted (or until `until` is set), at `PORTS` where `ports` names no other;
    a port of 0 is chosen by the system.

    `port_file` receives {site: URL} once all sites answer, and `ready` is called with the same.
    Raises PortTaken.
    """
    size: dict[str, Any] = {"servers": servers, "data": data, "shares": shares}
    with replicas(day, scale, faults, {**PORTS, **(ports or {})}, sites=sites, **size) as running:
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
