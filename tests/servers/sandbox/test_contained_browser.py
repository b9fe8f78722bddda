"""The crawl's browser in the sandbox: what it sees, what it reaches, and where its memory ends."""

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from assets.marketplaces.crawl.browser import PageBrowser
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from assets.servers.sandbox.bubblewrap import BubblewrapBackend
from assets.servers.sandbox.contained_browser import BROWSER_POLICY, open_browser_sandbox
from assets.servers.sandbox.spec import SandboxUnavailable
from tests.marketplaces.site import Answer, Script, site
from tests.support.errors import expect_kind

MISSING = "needs Chromium (Debian: apt-get install chromium)"
needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason=MISSING)
SMALL = partial(open_browser_sandbox, policy=replace(BROWSER_POLICY, memory_mb=640))


@pytest.fixture(autouse=True)
def working() -> None:
    try:
        BubblewrapBackend().preflight()
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time for a page to reach its limit on a machine that has other work."""
    monkeypatch.setattr("assets.marketplaces.crawl.browser._READY_MS", 90_000)
    monkeypatch.setattr("assets.marketplaces.crawl.browser._PAGE_S", 120.0)


def browse(url: str, read: Callable[[PageBrowser], Awaitable[None]], contain: object) -> None:
    async def run() -> None:
        policy = CrawlPolicy(base_url=url, allow_loopback=True, contain=contain)  # type: ignore[arg-type]
        browser = PageBrowser(policy)
        try:
            await read(browser)
        finally:
            await browser.close()

    asyncio.run(run())


def test_what_runs_in_its_place_sees_no_file_process_or_variable_of_the_host(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "canary")
    outside = tmp_path / "outside"
    outside.write_text("canary")
    with open_browser_sandbox("/usr/bin/cat", frozenset()) as contained:

        def read(*paths: object) -> str:
            words = [contained.program, *map(str, paths)]
            return subprocess.run(words, capture_output=True, text=True, check=False).stdout

        assert "canary" not in read(outside, "/proc/self/environ", "/proc/1/environ")
        assert read("/etc/shadow", Path.home() / ".bashrc") == ""
        facts = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
        limits = read("/proc/self/limits")
        routes = read("/proc/net/route")
    assert (facts["Seccomp"].strip(), facts["NoNewPrivs"].strip()) == ("2", "1")
    assert int(facts["CapEff"], 16) == 0
    assert str(BROWSER_POLICY.memory_mb << 20) in limits
    assert routes.splitlines()[1:] == []


@needs_chromium
def test_a_redirect_of_a_page_reaches_no_other_port_of_this_machine():
    """The browser's own routing does not ask about redirects: one of them reached any port."""
    page = """<html><script>fetch("/away", {mode: "no-cors"}).finally(() => document.body.append(
      Object.assign(document.createElement("pre"), {textContent: "done"})));</script><body>"""
    with site(lambda *_: Answer("secret")) as other:

        def answer(path: str, _: int) -> Answer:
            if path == "/away":
                return Answer("", status=307, headers={"Location": f"{other.url}/taken"})
            return Answer(page)

        async def read(browser: PageBrowser) -> None:
            assert "done" in (await browser.render_html(f"{here.url}/servers/a", "pre"))[0]
            assert other.url.removeprefix("http://") in browser.contained.refused

        with site(answer) as here:
            browse(here.url, read, open_browser_sandbox)
        assert "/away" in here.paths
    assert other.paths == []


@needs_chromium
@pytest.mark.usefixtures("unhurried")
def test_a_page_that_takes_memory_or_asks_without_end_is_a_row_and_the_next_is_read():
    greedy = """<html><script>const held = []; setInterval(() => held.push(
      new Uint8Array(64 << 20).fill(1)), 1);</script></html>"""
    script: Script = lambda path, _: Answer(greedy if path == "/greedy" else "<pre>fine</pre>")  # noqa: E731

    async def read(browser: PageBrowser) -> None:
        with pytest.raises(CrawlError) as caught:
            await browser.render_html(f"{here.url}/greedy", "pre")
        assert caught.value.kind in ("too_large", "unreachable")
        assert "memory" in caught.value.found or "rash" in caught.value.found
        assert (await browser.render_html(f"{here.url}/fine", "pre"))[1]

    with site(script) as here:
        browse(here.url, read, SMALL)
    # A page's requests pass through us, where no limit of the browser counts.
    with site(lambda path, _: Answer(ASKING if path == "/x" else "<pre>fine</pre>")) as here:

        async def read(browser: PageBrowser) -> None:
            with pytest.raises(CrawlError, match="asks for more than 1,000 requests"):
                await browser.render_html(f"{here.url}/x", "pre")
            assert browser.refused <= {"127.0.0.1:9"}
            assert (await browser.render_html(f"{here.url}/fine", "pre"))[1]

        browse(here.url, read, open_browser_sandbox)


@needs_chromium
def test_a_page_whose_script_never_rests_ends_at_its_deadline(monkeypatch):
    module = "assets.marketplaces.crawl.browser"
    busy = "<html><body><script>setTimeout(() => { for (;;); }, 100)</script></body></html>"
    script: Script = lambda path, _: Answer(busy if path == "/busy" else "<pre>fine</pre>")  # noqa: E731

    async def read(browser: PageBrowser) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}._PAGE_S", -27.0)  # 3 s in all, of which it waits for one
            patch.setattr(f"{module}._READY_MS", 1000)
            with pytest.raises(CrawlError, match="come to rest"):
                await browser.render_html(f"{here.url}/busy", "pre")
        assert (await browser.render_html(f"{here.url}/fine", "pre"))[1]

    with site(script) as here:
        browse(here.url, read, open_browser_sandbox)


def test_without_a_sandbox_no_page_is_opened(monkeypatch):
    refuse = Mock(side_effect=SandboxUnavailable("bwrap", "not installed", "install it"))
    monkeypatch.setattr(BubblewrapBackend, "preflight", refuse)

    async def read(browser: PageBrowser) -> None:
        with expect_kind(CrawlError, "no_browser", "install it"):
            await browser.render_html(f"{here.url}/servers/a", "pre")

    with site(lambda *_: Answer("")) as here:
        browse(here.url, read, open_browser_sandbox)
    assert here.paths == []


ASKING = """<html><body><script>
  const far = "http://127.0.0.1:9/" + "x".repeat(400000); let n = 0;
  setInterval(() => { if (n++ < 60) fetch(far + n, {mode: "no-cors"}).catch(() => 0) }, 1)
  </script></body></html>"""
