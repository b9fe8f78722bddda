"""The fetch phase: a staging folder, npm or uv run in the sandbox, and bounded downloads."""

import hashlib
import json
import os
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any, BinaryIO

import anyio
import httpx2

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.sandbox import tool_relay
from assets.servers.sandbox.gateway import (
    GATEWAY,
    EgressGateway,
    build_relayed,
    list_registries,
    open_gateway,
)
from assets.servers.sandbox.process import (
    SandboxProcess,
    choose_backend,
    describe_fetch_network,
    start,
)
from assets.servers.sandbox.spec import SandboxLaunch, SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import HostToolchain
from assets.servers.sandbox.watchdog import LimitBreach, SandboxWatchdog
from warehouse.network.egress import EgressConnector, is_loopback
from warehouse.network.http import AsyncTransport
from warehouse.storage.digest import Sha256
from warehouse.storage.untrusted_files import remove_tree

TREE = "tree"  # the part that the run phase sees
MANIFEST = "toolmill.json"
FETCH_UID = 1_199_999_999
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True)
class StagingFolder:
    """opened: the one folder that is writable inside. Nothing of ours is written there once a tool
    has run in it: third-party code may have left links and pipes in our way."""

    folder: Path

    @property
    def opened(self) -> Path:
        return self.folder / "opened"

    @property
    def tree(self) -> Path:
        return self.opened / TREE

    def write_request(self, name: str, text: str) -> None:
        """A file for a tool to read; before any tool runs."""
        _write_new(self.opened / name, text)
        set_fetch_owner(self.opened / name)

    def publish(self, facts: Mapping[str, Any], folder: Path) -> None:
        """Moves the tree and its manifest to `folder`, by way of one that no tool has seen."""
        sealed = self.folder / "sealed"
        sealed.mkdir()
        self.tree.rename(sealed / TREE)
        if not S_ISDIR((sealed / TREE).lstat().st_mode):  # it would be mounted, wherever it leads
            raise PackageError(
                "build_failed", "its install scripts put a link in place of its folder"
            )
        _write_new(sealed / MANIFEST, json.dumps(facts))
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            sealed.rename(folder)
        except OSError:
            if not (folder / MANIFEST).exists():  # else another run was first with the same
                raise


@contextmanager
def open_staging(home: Path) -> Iterator[StagingFolder]:
    """A fresh folder with an empty tree, removed in the end."""
    parent = home / "cache" / "staging"
    # Removes what fetches that were killed left behind more than a day ago.
    for path in parent.glob("*"):
        with suppress(OSError):
            if path.lstat().st_mtime < time.time() - 86_400:
                remove_tree(path) if path.is_dir() else path.unlink()
    staging = StagingFolder(parent / uuid.uuid4().hex)
    try:
        staging.tree.mkdir(parents=True)
        set_fetch_owner(staging.opened)
        set_fetch_owner(staging.tree)
        yield staging
    finally:
        with suppress(OSError):  # what is left goes a day later
            remove_tree(staging.folder)


def set_fetch_owner(path: Path) -> None:
    """Gives one file or folder to the user of the fetch phase (only root needs to)."""
    if os.geteuid() == 0:
        os.chown(path, FETCH_UID, FETCH_UID, follow_symlinks=False)


def _write_new(path: Path, text: str) -> None:
    with open(os.open(path, _CREATE, 0o644), "w") as file:
        file.write(text)


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
    memory_mb=3072, processes=256, file_mb=1024, cpu_s=300, wall_s=240.0, tmp_mb=1024
)


@dataclass(frozen=True)
class ToolExit:
    """How a tool ended. Output is decoded and cut to its last MiB."""

    code: int | None
    signal: str | None
    stdout: str
    stderr: str
    breach: LimitBreach | None

    @property
    def output(self) -> str:
        """Standard error, or standard output where that is empty, in one line."""
        return " ".join((self.stderr or self.stdout).split())[-600:]


def run_tool(
    argv: tuple[str, ...],
    *,
    staging: StagingFolder,
    toolchain: HostToolchain,
    policy: SandboxPolicy = FETCH_POLICY,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[SandboxMount] = (),
) -> ToolExit:
    """Runs `argv` with the staging's opened folder writable at /fetch, and nothing else: package
    caches lie inside it, so that nothing is poisoned for another fetch. Never raises for what the
    tool does; raises SandboxUnavailable where there is no sandbox.

    It has a network of its own that leads to the registries of this host alone; backend `none` has
    the host's. No package's own script runs, and none is prepared from git."""
    # No file of a package's folder overrides it: `.npmrc` of a dependency from git once named the
    # program that npm ran as git.
    settings = {
        **toolchain.fetch_env,
        "UV_CACHE_DIR": f"{FETCH}/caches/uv",
        "UV_NO_PROGRESS": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "npm_config_cache": f"{FETCH}/caches/npm",
        "npm_config_update_notifier": "false",
        "npm_config_userconfig": "/dev/null",
        "npm_config_globalconfig": "/dev/null/none",
        "npm_config_ignore_scripts": "true",
        "npm_config_allow_git": "none",
        "npm_config_git": "/bin/false",
        "npm_config_script_shell": "/bin/sh",
        "NO_COLOR": "1",
        **(env or {}),
    }
    visible = [SandboxMount(staging.opened, FETCH, writable=True), *mounts]
    visible += [SandboxMount.same(path) for path in (*toolchain.binds, *toolchain.fetch_binds)]
    with ExitStack() as stack:
        if describe_fetch_network(choose_backend(policy).name) == "registries":
            folder = stack.enter_context(_open_gateway(toolchain.fetch_env, policy))
            visible.append(SandboxMount(folder, GATEWAY))
            argv = build_relayed(toolchain.python, argv)
            settings |= _PROXIED
        launch = SandboxLaunch(argv, settings, tuple(visible), uid=FETCH_UID)
        jailed = stack.enter_context(start(launch, replace(policy, network="none")))
        with SandboxWatchdog(jailed, policy) as watchdog:
            stdout, stderr = _read_outputs(jailed)
            jailed.process.wait()
        code, signal = jailed.exit_status()
    return ToolExit(code, signal, stdout, stderr, watchdog.breach)


def _open_gateway(env: Mapping[str, str], policy: SandboxPolicy) -> AbstractContextManager[Path]:
    gateway = EgressGateway(list_registries(env, policy.fetch_hosts), env)
    return open_gateway(gateway, FETCH_UID if os.geteuid() == 0 else None)


def fetch_policy(policy: SandboxPolicy | None) -> SandboxPolicy:
    """The limits of the fetch phase, in the backend that servers run in."""
    names = ("backend", "allow_loopback", "fetch_hosts") if policy else ()
    return replace(FETCH_POLICY, **{name: getattr(policy, name) for name in names})


def _read_outputs(jailed: SandboxProcess) -> tuple[str, str]:
    """Both outputs, read to their end at once."""
    if jailed.process.stdin:
        jailed.process.stdin.close()
    tails = [b"", b""]

    def drain(slot: int, stream: Any) -> None:
        while chunk := stream.read1(65_536):
            tails[slot] = (tails[slot] + chunk)[-_KEPT:]

    reader = threading.Thread(target=drain, args=(1, jailed.process.stderr), daemon=True)
    reader.start()
    drain(0, jailed.process.stdout)
    reader.join()
    return tails[0].decode("utf-8", "replace"), tails[1].decode("utf-8", "replace")


MAX_BUNDLE_MB = 256
_DEADLINE_S = 240.0  # look-ups, redirects and body together; a host may send a byte a second
_STALL_S = 60.0
_REDIRECTS = 5


def download(
    url: str,
    folder: Path,
    *,
    sha256: Sha256 | None = None,
    max_mb: int = MAX_BUNDLE_MB,
    allow_loopback: bool = False,
    deadline_s: float = _DEADLINE_S,
) -> tuple[Path, Sha256]:
    """(path, sha256 hex) of the bundle at `url`, kept in `folder` by its hash.

    With `sha256` a bundle already there is not downloaded again, and one that hashes to anything
    else is refused (`integrity`). Other failures: `not_found`, `oversize`, `fetch_failed` (also
    where the URL or a redirect leads to a private address, and after `deadline_s` in all).
    allow_loopback: a URL on loopback, and what it redirects to, may lie there (the demo's do).
    """
    folder.mkdir(parents=True, exist_ok=True)
    if sha256 and (cached := folder / Sha256(sha256)).exists():
        if hashlib.sha256(cached.read_bytes()).hexdigest() == sha256:
            return cached, sha256
        cached.unlink()  # damaged on this disk: fetch it again
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".part-")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            connector = EgressConnector(allow_loopback=allow_loopback and _is_on_loopback(url))
            actual = anyio.run(_stream_bundle, url, file, max_mb << 20, connector, deadline_s)
        if sha256 and actual != sha256:
            raise PackageError(
                "integrity", f"{url} hashes to {actual[:16]}…, expected {sha256[:16]}…"
            )
        part.rename(folder / actual)
        return folder / actual, actual
    finally:
        part.unlink(missing_ok=True)


def _is_on_loopback(url: str) -> bool:
    try:
        return is_loopback(httpx2.URL(url).host)
    except httpx2.InvalidURL:
        return False  # refused, with its reason, when it is asked for


async def _stream_bundle(
    url: str, file: BinaryIO, limit: int, connector: EgressConnector, deadline_s: float
) -> Sha256:
    total, state = 0, hashlib.sha256()
    try:
        with anyio.fail_after(deadline_s):
            async with _open_bundle(url, connector) as answer:
                # Raises PackageError unless it is the bundle as it is.
                if answer.status_code in (404, 410):
                    raise PackageError("not_found", f"{url} answers {answer.status_code}")
                if answer.status_code != 200:
                    raise PackageError("fetch_failed", f"{url} answers {answer.status_code}")
                encoding = answer.headers.get("content-encoding", "identity").strip().lower()
                if encoding not in ("", "identity"):
                    raise PackageError(
                        "fetch_failed",
                        f"{url} is sent in the encoding {encoding[:40]!r}, asked for none",
                    )
                async for chunk in answer.aiter_raw():  # as sent: nothing is decompressed
                    total += len(chunk)
                    if total > limit:
                        raise PackageError("oversize", f"{url} is larger than {limit >> 20} MB")
                    state.update(chunk)
                    file.write(chunk)
    except TimeoutError as error:
        raise PackageError("fetch_failed", f"{url}: not done in {deadline_s:g} s") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise PackageError("fetch_failed", f"{url}: {error or type(error).__name__}") from error
    return Sha256(state.hexdigest())


@asynccontextmanager
async def _open_bundle(url: str, connector: EgressConnector) -> AsyncIterator[httpx2.Response]:
    """The first answer that is no redirect. Redirects are followed here, each over the guarded
    connector: the client would read, and decompress, their bodies without a bound."""
    async with httpx2.AsyncClient(
        transport=AsyncTransport(connector),
        headers={"Accept-Encoding": "identity"},
        timeout=_STALL_S,
    ) as client:
        request = client.build_request("GET", url)
        for _ in range(_REDIRECTS + 1):
            answer = await client.send(request, stream=True)
            try:
                if answer.next_request is None:
                    yield answer
                    return
                request = answer.next_request
            finally:
                await answer.aclose()
    raise PackageError("fetch_failed", f"{url}: more than {_REDIRECTS} redirects")
