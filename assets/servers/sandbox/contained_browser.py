"""The crawl's browser inside the sandbox: no file of the host, limits of its own, and a network
that leads to the marketplace's hosts alone.

Pages of a marketplace are third-party code, and Playwright runs Chromium without Chromium's own
sandbox: a flaw of the browser would be a flaw of this machine.
"""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from assets.servers.sandbox import tool_relay
from assets.servers.sandbox.bubblewrap import BubblewrapBackend, write_launch
from assets.servers.sandbox.gateway import (
    GATEWAY,
    EgressGateway,
    Host,
    build_relayed,
    make_dialler,
    open_gateway,
)
from assets.servers.sandbox.spec import SandboxLaunch, SandboxMount, SandboxPolicy, choose_user
from assets.servers.sandbox.toolchain import find_python
from assets.servers.sandbox.watchdog import SandboxWatchdog
from warehouse.network.egress import EgressConnector

BROWSER_POLICY = SandboxPolicy(
    backend="bubblewrap",
    memory_mb=2048,  # the whole tree; a plain page took 390 to 620 (n=6)
    processes=512,  # threads: Chromium has 20 to 40 a process
    open_files=4096,
    cpu_s=86_400,  # it lives as long as its crawl; a page has its own deadline
    wall_s=86_400.0,
)
_FIRST_USER, _USERS = 1_150_000_000, 1 << 20
_EVERY_S = 0.1  # between two looks at its memory: a crawl takes minutes
_ETC = ("/etc/chromium", "/etc/chromium.d", "/etc/chrome")
_PROXY = (
    f"--proxy-server=socks5://127.0.0.1:{tool_relay.PORT}",
    "--proxy-bypass-list=<-loopback>",  # the demo's sites are on loopback: ours, not the sandbox's
)


class ContainedBrowser:
    """program: what to start in Chromium's place; args: what it needs besides; refused: hosts that
    it asked for beyond its own."""

    def __init__(self, program: Path, gateway: EgressGateway, policy: SandboxPolicy) -> None:
        self.program, self.args, self._gateway = program, _PROXY, gateway
        self._policy, self._held = policy, ExitStack()
        self._watchdog: SandboxWatchdog | None = None

    @property
    def refused(self) -> list[str]:
        return self._gateway.refused

    @property
    def breach(self) -> str | None:
        """The limit that ended it, in words."""
        found = self._watchdog.breach if self._watchdog else None
        return f"{found.limit}: {found.found}" if found else None

    def watch(self) -> None:
        """Watches the browser that was started; called once it runs."""
        pid = int(self.program.with_name("pid").read_text())
        started = self._held.enter_context(_BrowserProcess(pid))
        watchdog = SandboxWatchdog(started, self._policy)
        watchdog.every_s = _EVERY_S
        self._watchdog = self._held.enter_context(watchdog)

    def end(self) -> None:
        self._held.close()


class _BrowserProcess:
    """A process that somebody else started, as a watchdog takes it; leaving it ends it."""

    def __init__(self, pid: int) -> None:
        self.pid, self.process = pid, self
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """None while it runs."""
        return 0 if select.select([self._handle], [], [], 0)[0] else None

    def kill(self) -> None:
        """Ends it, and with it the namespace of all that it started."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def __enter__(self) -> "_BrowserProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._handle)


@contextmanager
def open_browser_sandbox(
    chromium: str,
    hosts: frozenset[Host],
    *,
    allow_loopback: bool = False,
    policy: SandboxPolicy = BROWSER_POLICY,
) -> Iterator[ContainedBrowser]:
    """A way to start `chromium` contained, which ends with this. hosts: the only ones that it can
    reach, at addresses that are judged. Raises SandboxUnavailable where bubblewrap fails."""
    BubblewrapBackend().preflight()
    user = choose_user(_FIRST_USER, _USERS) if os.geteuid() == 0 else None
    python, binds = find_python()
    gateway = EgressGateway(hosts, {}, make_dialler(EgressConnector(allow_loopback=allow_loopback)))
    with (
        TemporaryDirectory(prefix="toolmill-browser-", ignore_cleanup_errors=True) as temporary,
        open_gateway(gateway, user) as socket,
    ):
        visible = [Path(path) for path in _ETC if os.path.exists(path)]
        real = Path(chromium).resolve()
        if not real.is_relative_to("/usr"):
            visible.append(real.parent)
            chromium = str(real)
        mounts = [
            SandboxMount(socket, GATEWAY),
            *(SandboxMount.same(path) for path in (*binds, *visible)),
        ]
        argv = build_relayed(python, [chromium])
        launch = SandboxLaunch(argv, mounts=tuple(mounts), uid=user)
        contained = ContainedBrowser(write_launch(launch, policy, Path(temporary)), gateway, policy)
        try:
            yield contained
        finally:
            contained.end()
