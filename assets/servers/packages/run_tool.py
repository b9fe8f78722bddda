"""One of our own tools (npm, uv) run to its end inside the sandbox, with bounded output."""

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assets.servers.egress import tool_relay
from assets.servers.egress.gateway import (
    GATEWAY,
    Gateway,
    build_relayed,
    list_registries,
    open_gateway,
)
from assets.servers.packages.staging import FETCH_UID, Staging
from assets.servers.sandbox.process import Jailed, choose_backend, start
from assets.servers.sandbox.spec import Launch, Mount, SandboxPolicy
from assets.servers.sandbox.toolchain import Toolchain
from assets.servers.sandbox.watchdog import Breach, Watchdog

FETCH = "/fetch"  # where the writable folder is seen inside
_PROXY = f"socks5h://127.0.0.1:{tool_relay.PORT}"
_PROXIED = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _PROXY),
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), _PROXY),
    **dict.fromkeys(("npm_config_proxy", "npm_config_https_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy", "npm_config_noproxy"), ""),
}
_KEPT = 1 << 20  # bytes of output that are kept

FETCH_POLICY = SandboxPolicy(
    memory_mb=3072,
    processes=256,
    file_mb=1024,
    cpu_s=300,
    wall_s=240.0,
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
    def output(self) -> str:
        """Standard error, or standard output where that is empty, in one line."""
        return " ".join((self.stderr or self.stdout).split())[-600:]


def run_tool(
    argv: tuple[str, ...],
    *,
    staging: Staging,
    toolchain: Toolchain,
    policy: SandboxPolicy = FETCH_POLICY,
    scripts: bool = False,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
) -> Finished:
    """Runs `argv` with the staging's opened folder writable at /fetch, and nothing else: package
    caches lie inside it, so that nothing is poisoned for another fetch. Never raises for what the
    tool does; raises SandboxUnavailable where there is no sandbox.

    It has a network of its own that leads to the registries of this host alone; backend `none` has
    the host's. scripts: third-party scripts may run, and dependencies be prepared from git."""
    settings = {**_make_settings(toolchain.fetch_env, scripts=scripts), **(env or {})}
    shown = [Mount(staging.opened, FETCH, writable=True), *mounts]
    shown += [Mount.same(path) for path in (*toolchain.binds, *toolchain.fetch_binds)]
    with ExitStack() as held:
        if describe_fetch_network(choose_backend(policy).name) == "registries":
            folder = held.enter_context(_open_gateway(toolchain.fetch_env, policy))
            shown.append(Mount(folder, GATEWAY))
            argv = build_relayed(toolchain.python, argv)
            settings |= _PROXIED
        launch = Launch(argv, settings, tuple(shown), uid=FETCH_UID)
        jailed = held.enter_context(start(launch, replace(policy, network="none")))
        with Watchdog(jailed, policy) as watchdog:
            stdout, stderr = _read_outputs(jailed)
            jailed.process.wait()
        code, signal = jailed.exit_status()
    return Finished(code, signal, stdout, stderr, watchdog.breach)


def _open_gateway(env: Mapping[str, str], policy: SandboxPolicy) -> AbstractContextManager[Path]:
    gateway = Gateway(list_registries(env, policy.fetch_hosts), env)
    return open_gateway(gateway, FETCH_UID if os.geteuid() == 0 else None)


def _make_settings(env: Mapping[str, str], *, scripts: bool) -> dict[str, str]:
    """The environment of npm and uv. No file of a package's folder overrides it: `.npmrc` of a
    dependency from git once named the program that npm ran as git."""
    return {
        **env,
        "UV_CACHE_DIR": f"{FETCH}/caches/uv",
        "UV_NO_PROGRESS": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "npm_config_cache": f"{FETCH}/caches/npm",
        "npm_config_update_notifier": "false",
        "npm_config_userconfig": "/dev/null",
        "npm_config_globalconfig": "/dev/null/none",
        # Also for the npm that npm starts to prepare a dependency from git.
        "npm_config_ignore_scripts": "false" if scripts else "true",
        "npm_config_allow_git": "all" if scripts else "none",
        "npm_config_git": "/usr/bin/git" if scripts else "/bin/false",
        "npm_config_script_shell": "/bin/sh",
        "NO_COLOR": "1",
    }


def describe_fetch_network(backend: str) -> str:
    """What the fetch phase reaches in a backend; part of the certificate."""
    return "host" if backend == "none" else "registries"


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
        fetch_hosts=policy.fetch_hosts,
    )


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
