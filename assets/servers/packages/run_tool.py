"""One of our own tools (npm, uv) run to its end inside the sandbox, with bounded output."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assets.servers.sandbox.process import Jailed, start
from assets.servers.sandbox.spec import Launch, Mount, SandboxPolicy
from assets.servers.sandbox.toolchain import Toolchain
from assets.servers.sandbox.watchdog import Breach, Watchdog

FETCH = "/fetch"  # where the writable folder is seen inside
_FETCH_UID = 1_199_999_999
_KEPT = 1 << 20  # bytes of output that are kept

FETCH_POLICY = SandboxPolicy(
    memory_mb=3072,
    processes=256,
    file_mb=1024,
    cpu_s=300,
    wall_s=240.0,
    network="full",
    tmp_mb=1024,
)


@dataclass(frozen=True)
class Finished:
    """How a tool ended. Output is decoded and cut to its last MiB."""

    code: int | None
    signal: str | None
    stdout: str
    stderr: str
    breach: Breach | None

    @property
    def said(self) -> str:
        """Standard error, or standard output where that is empty, in one line."""
        return " ".join((self.stderr or self.stdout).split())[-600:]


def run_tool(
    argv: tuple[str, ...],
    *,
    cache: Path,
    toolchain: Toolchain,
    policy: SandboxPolicy = FETCH_POLICY,
    alone: Path | None = None,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
) -> Finished:
    """Runs `argv` with the network on and `cache` writable at /fetch. Never raises for what the
    tool does; raises SandboxUnavailable where there is no sandbox.

    alone: the one folder below `cache` that is writable, because third-party scripts will run; the
    package caches are then empty ones inside it, so that nothing is poisoned for the next fetch."""
    _own_cache(cache)
    shown = alone or cache
    inside = f"{FETCH}/{shown.relative_to(cache)}".removesuffix("/.")
    caches = f"{inside}/caches" if alone else inside
    mounts = [Mount(shown, inside, writable=True), *mounts]
    mounts += [Mount.same(path) for path in (*toolchain.binds, *toolchain.fetch_binds)]
    settings = {
        **toolchain.fetch_env,
        "UV_CACHE_DIR": f"{caches}/uv",
        "UV_NO_PROGRESS": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "npm_config_cache": f"{caches}/npm",
        "npm_config_update_notifier": "false",
        "npm_config_userconfig": "/dev/null",
        # Also for the npm that npm starts to prepare a dependency from git.
        "npm_config_ignore_scripts": "false" if alone else "true",
        "NO_COLOR": "1",
        **(env or {}),
    }
    launch = Launch(argv, settings, tuple(mounts), uid=_FETCH_UID)
    with start(launch, replace(policy, network="full")) as jailed:
        with Watchdog(jailed, policy) as watchdog:
            stdout, stderr = _read_outputs(jailed)
            jailed.process.wait()
        code, signal = jailed.exit_status()
    return Finished(code, signal, stdout, stderr, watchdog.breach)


def fetch_policy(policy: SandboxPolicy | None) -> SandboxPolicy:
    """The limits of the fetch phase, in the backend that servers run in."""
    if policy is None:
        return FETCH_POLICY
    return replace(
        FETCH_POLICY,
        backend=policy.backend,
        engine=policy.engine,
        image=policy.image,
        allow_loopback=policy.allow_loopback,
    )


def own_path(path: Path) -> None:
    """Gives one file or folder to the user of the fetch phase (only root needs to)."""
    if os.geteuid() == 0:
        os.chown(path, _FETCH_UID, _FETCH_UID, follow_symlinks=False)


def _own_cache(cache: Path) -> None:
    """Makes the folder; a cache that another user began is given over as a whole."""
    (cache / "staging").mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and cache.stat().st_uid != _FETCH_UID:
        for folder, _, names in os.walk(cache):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                own_path(Path(path))


def _read_outputs(jailed: Jailed) -> tuple[str, str]:
    """Both outputs, read to their end at once."""
    if jailed.process.stdin:
        jailed.process.stdin.close()
    kept = [b"", b""]

    def drain(slot: int, stream: Any) -> None:
        while chunk := stream.read1(65_536):
            kept[slot] = (kept[slot] + chunk)[-_KEPT:]

    reader = threading.Thread(target=drain, args=(1, jailed.process.stderr), daemon=True)
    reader.start()
    drain(0, jailed.process.stdout)
    reader.join()
    return kept[0].decode("utf-8", "replace"), kept[1].decode("utf-8", "replace")
