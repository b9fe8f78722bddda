"""Server: replica marketplaces for the time of a block or until interrupted."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from demo.ports import PORTS
from demo.running import Replicas
from warehouse.storage.files import write_atomically


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
    port_file: Path | None = None,
    ready: Callable[[dict[str, str]], None] | None = None,
    until: threading.Event | None = None,
    **options: Any,
) -> None:
    """Serves until interrupted (or until `until` is set), at `PORTS` where `ports` names no other;
    a port of 0 is chosen by the system. `options` are those of Replicas.

    `port_file` receives {site: URL} once all sites answer, and `ready` is called with the same.
    Raises PortTaken.
    """
    with replicas(ports={**PORTS, **(ports or {})}, **options) as running:
        urls = dict(running)
        if port_file is not None:
            write_atomically(port_file, json.dumps(urls).encode())
        if ready is not None:
            ready(urls)
        with suppress(KeyboardInterrupt):
            (until or threading.Event()).wait()
