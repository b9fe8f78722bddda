"""Pages of the Dagster UI over a home, timed in headless Chromium: over a month of runs and a day.

    python -m benchmarks.ui_pages HOME [HOME ...] [--times 5] [--pictures FOLDER]

Each home gets a webserver of its own on a free port, all at once; pages are loaded in turns over
them. A page is there once it shows what it is opened for and no request has gone out for half a
second (which is not counted). The first load of each is left out: it fills the browser's cache.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from orchestration.factories import find_chromium
from orchestration.runs.process_tree import interrupt_tree, kill_tree
from warehouse.sanitize.markdown import make_markdown_table

ROOT = Path(__file__).parents[1]
_START_S = 180.0
_PAGE_MS = 60_000
# name -> (path, text that is there once the page shows what it is opened for)
PAGES = {
    "runs": ("/runs", "nightly"),
    "the last run": ("/runs/{run}", "Success"),
    "asset catalogue": ("/assets", "Materialized"),
    "lineage": ("/asset-groups", "marketplaces"),
    "pairs": ("/assets/pairs", "Row count"),
    "events of pairs": ("/assets/pairs?view=events", "materialized in run"),
    "partitions of deployments": ("/assets/deployments?view=partitions", "registry"),
    "events of drift (plot)": ("/assets/drift?view=events", "Materialized in run"),
    "automation": ("/automation", "alert_on_failure"),
    "deployment": ("/deployment/locations", "Loaded"),
}
_LAST_RUN = "{ runsOrError(limit: 1) { ... on Runs { results { runId } } } }"


@dataclass
class Visited:
    """A home's webserver, and what each of its pages took (seconds) and asked for (bytes)."""

    home: Path
    url: str
    run: str  # the last one
    seconds: dict[str, list[float]] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("homes", type=Path, nargs="+")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of each page")
    given = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        sys.exit("ui_pages needs Chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        visited = []
        for home in given.homes:
            url = stack.enter_context(serve_ui(home.resolve()))
            visited.append(Visited(home, url, find_last_run(url)))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        stack.callback(browser.close)
        for name in PAGES:
            for turn in range(given.times + 1):
                for one in visited if turn % 2 else reversed(visited):
                    folder = given.pictures and given.pictures / one.home.parent.name
                    picture = folder / f"{name}.png" if folder and not turn else None
                    took, size = load_page(browser, one, name, picture)
                    if turn:
                        one.seconds.setdefault(name, []).append(took)
                        one.bytes.setdefault(name, []).append(size)
    print(render_table(visited))
    print(f"\nn = {given.times}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


@contextmanager
def serve_ui(home: Path) -> Iterator[str]:
    """Dagster's webserver over a home, until the block ends; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    state = home / "state"
    env = {name: text for name, text in os.environ.items() if not name.startswith("TOOLMILL_")}
    env |= {"TOOLMILL_HOME": str(home), "DAGSTER_HOME": str(state / "dagster")}
    env |= {"PYTHONPATH": str(ROOT), "GX_ANALYTICS_ENABLED": "false"}
    command = [str(Path(sys.executable).with_name("dagster-webserver"))]
    command += ["-w", str(ROOT / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    log = state / "webserver.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            command,
            cwd=state / "dagster",
            env=env,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        deadline, url = time.monotonic() + _START_S, f"http://127.0.0.1:{port}"
        while not is_up(url):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"no webserver over {home}: {log.read_text()[-1000:]}")
            time.sleep(0.5)
        yield url
    finally:
        interrupt_tree(server.pid, 20.0)
        kill_tree(server.pid)
        server.wait()


def is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/server_info", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


def find_last_run(url: str) -> str:
    answer = httpx2.post(f"{url}/graphql", json={"query": _LAST_RUN}, timeout=120).json()
    return answer["data"]["runsOrError"]["results"][0]["runId"]


def load_page(browser: Any, visited: Visited, name: str, picture: Path | None) -> tuple[float, int]:
    """Seconds until the page is there, and bytes of what its questions were answered with."""
    path, text = PAGES[name]
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    asked: list[Any] = []
    last = [0.0]

    def note(request: Any) -> None:
        last[0] = time.monotonic()
        asked.append(request)

    page.on("requestfinished", note)
    began = time.monotonic()
    page.goto(visited.url + path.format(run=visited.run), wait_until="commit")
    page.get_by_text(text).first.wait_for(timeout=_PAGE_MS)
    shown = time.monotonic()
    page.wait_for_load_state("networkidle", timeout=_PAGE_MS)
    took = max(shown, last[0]) - began
    if picture:
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=picture)
    answers = [one for one in asked if "/graphql" in one.url and one.method == "POST"]
    size = sum(answer.sizes()["responseBodySize"] for answer in answers)
    page.close()
    return took, size


def render_table(visited: Sequence[Visited]) -> str:
    """A page a line: median (range) of seconds and kB of answers, of each home."""
    rows = []
    for name in PAGES:
        cells = [name]
        for one in visited:
            took, size = one.seconds[name], median(one.bytes[name]) / 1000
            cells.append(f"{median(took):.2f} ({min(took):.2f} to {max(took):.2f}), {size:.0f} kB")
        rows.append(cells)
    return make_markdown_table(["page", *(str(one.home.parent.name) for one in visited)], rows)


if __name__ == "__main__":
    main()
