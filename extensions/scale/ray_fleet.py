"""Pieces of work as tasks of a Ray cluster (Ray 2, https://docs.ray.io/en/latest/ray-core/tasks.html)."""

import os
import pickle
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

from warehouse.fleet import FleetSettings, FleetUnavailable, TaskLost

_CONNECT_S = 10.0
_TIMEOUT_S = 1800.0  # of a piece of work, with its wait for a worker
_RETRIES = 2  # of a piece whose worker died
_STARTING = Lock()  # of the one connection that a process has
# Ray asks the kernel to end its daemons with the thread that started them: one that lives on.
_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray-start")


@dataclass(frozen=True)
class RayFleet:
    """Workers of one Ray cluster; see Fleet. Raises FleetUnavailable where there is none."""

    settings: FleetSettings

    def call(self, fn: Callable[..., bytes], *args: Any) -> bytes:
        ray, limits = self._connect(), self.settings
        _check_plain(fn, args)
        task = ray.remote(fn).options(
            name=f"toolmill.{fn.__name__}",
            num_cpus=limits.cpus,
            memory=limits.memory_mb * 2**20,
            max_retries=_RETRIES,
            retry_exceptions=False,
        )
        result = task.remote(*args)
        try:
            return ray.get(result, timeout=_TIMEOUT_S)
        except ray.exceptions.GetTimeoutError:
            ray.cancel(result, force=True)
            why = f"no result within {_TIMEOUT_S:g} s, the wait for a worker included"
            raise TaskLost(why) from None
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        except ray.exceptions.RayError as error:
            why = f"its worker ended before it did, {_RETRIES + 1} of {_RETRIES + 1} times"
            raise TaskLost(f"{why} ({type(error).__name__})") from None

    def _connect(self) -> Any:
        """The module, connected to the cluster. One process has one connection."""
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            fix = ".venv/bin/uv pip install 'toolmill[ray]'"
            raise FleetUnavailable(f'fleet.runs_on = "ray" needs the package ray: {fix}') from error
        with _STARTING:
            if not ray.is_initialized():
                _STARTER.submit(_start, ray, self.settings.address).result()
        return ray


def _start(ray: Any, address: str) -> None:
    # Ray reports its use to a public address unless it is told not to before it starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local_options = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        _check_answers(address)
        ray.init(
            address=address,
            log_to_driver=False,
            configure_logging=False,
            **(local_options if address == "local" else {}),
        )
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        problem = f"no Ray cluster at fleet.address = {address!r:.200} ({type(error).__name__})"
        fix = "start one there (`ray start --head`), or set `local` for one on this machine"
        raise FleetUnavailable(f"{problem}: {fix}") from error


def _check_answers(address: str) -> None:
    """Raises OSError where nobody listens: Ray itself tries that address for minutes."""
    if address_parts := re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address):
        place = address_parts[1], int(address_parts[2])
        socket.create_connection(place, timeout=_CONNECT_S).close()


def _check_plain(fn: Callable[..., bytes], args: tuple[Any, ...]) -> None:
    """Raises TypeError for anything but plain data: Ray's pickle would take a whole closure."""
    try:
        pickle.dumps((fn, args))
    except Exception as error:
        name = getattr(fn, "__qualname__", fn)
        raise TypeError(
            f"{name}: a task takes a module's function and plain data ({type(error).__name__})"
        ) from None
