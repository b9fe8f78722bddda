"""Launch: how many servers drawn at random list their tools, and what each costs.

    python -m benchmarks.bench_launch                     # the forty, placeholders on and off
    python -m benchmarks.bench_launch --list development  # the others of the same seed

The population is every record of the registry's seed whose package has the form of an npm or PyPI
name: 123 of 471, also those that were never published or whose arguments start a checkout. Forty
were drawn from the sorted names with seed 4 and written to `launch_forty.json` before any of them
was launched; recipes and guesses were developed on the others.
"""

import argparse
import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from assets.marketplaces.listing import Listing
from assets.marketplaces.server_json.document import make_server_listing
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import UnlaunchableServer
from assets.servers.recipes.recipe_plan import plan_recipe
from assets.servers.recipes.version_resolver import VersionResolver
from assets.servers.sandbox.toolchain import find_toolchain
from benchmarks.shared_data import SHARED, require_paths
from warehouse.ledger.ledger import Ledger
from warehouse.statistics import wilson_interval
from warehouse.storage.blobs import Blobs

FROZEN = Path(__file__).with_name("launch_forty.json")
_ABSENT = ("not_found", "no_recipe")


@dataclass(frozen=True)
class Row:
    """One server, one attempt. attempt_s: the whole attempt, fetch and further tries included."""

    server: str
    status: str  # ok or the kind
    tools: int
    seconds: float | None  # from start to the first list of tools
    peak_mb: float | None
    attempt_s: float
    version: str | None = None
    made_up: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=["forty", "development"], default="forty")
    parser.add_argument("--home", type=Path, help="where packages are kept; else a new folder")
    options = parser.parse_args()
    require_paths(SHARED / "registry-seed")
    forty = json.loads(FROZEN.read_text())["servers"]
    drawn = options.list == "forty"
    listings = {name: of for name, of in read_population().items() if (name in forty) == drawn}
    home = options.home or Path(tempfile.mkdtemp(prefix="launch-"))
    found = {on: launch_each(listings, home, on) for on in (True, False)}  # one fetch serves both
    for on, rows in found.items():
        print(render_report(rows, f"placeholders {'on' if on else 'off'}"))
    print(compare_arms(found[True], found[False]))


def launch_each(listings: dict[str, Listing], home: Path, placeholders: bool) -> list[Row]:
    """One after the other, each as a nightly run would: plan, fetch, launch, further tries."""
    home.mkdir(parents=True, exist_ok=True)
    toolchain = find_toolchain()
    resolve = VersionResolver(
        home, toolchain, Ledger(home / "ledger.db", Blobs(home / "blobs")), "bench"
    )
    policy = DeployPolicy(home, placeholders=placeholders, twice=False)
    rows = []
    for server, listing in listings.items():
        begun = time.perf_counter()
        recipe = plan_recipe(listing, resolve, placeholders=placeholders)
        if isinstance(recipe, UnlaunchableServer):
            took = time.perf_counter() - begun
            rows.append(Row(server, recipe.kind, 0, None, None, took))
            continue
        done = deploy(recipe, policy, toolchain)
        result, ok = done.probe, done.probe.status == "ok"
        rows.append(
            Row(
                server,
                str(result.error_kind or "ok"),
                len(result.tools),
                result.seconds if ok else None,
                result.peak_mb or None,
                time.perf_counter() - begun,
                recipe.version,
                done.placeholders,
            )
        )
    return rows


def render_report(rows: list[Row], title: str) -> str:
    lines = [f"\n## {title}\n", "| server | version | status | tools | s | peak MB | made up |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: | --- |")
    for row in rows:
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        peak = "" if row.peak_mb is None else f"{row.peak_mb:.0f}"
        cells = [row.server, row.version or "", row.status, str(row.tools or ""), seconds, peak]
        lines.append(f"| {' | '.join([*cells, ', '.join(row.made_up)[:80]])} |")
    listed = sum(row.status == "ok" for row in rows)
    lines.append(f"\n{render_rate('list their tools', listed, len(rows))}")
    there = [row for row in rows if row.status not in _ABSENT]
    lines.append(render_rate("of those that could be had and have a program", listed, len(there)))
    tools, took = sum(row.tools for row in rows), sum(row.attempt_s for row in rows)
    lines.append(f"{tools} tools, whole run {took:.0f} s")
    return "\n".join(lines)


def compare_arms(on: list[Row], off: list[Row]) -> str:
    """What placeholders change, server by server, with McNemar's exact test."""
    gained = sum(a.status == "ok" and b.status != "ok" for a, b in zip(on, off, strict=True))
    lost = sum(a.status != "ok" and b.status == "ok" for a, b in zip(on, off, strict=True))
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n if n else 1.0
    p = min(1.0, 2 * tail)
    return f"\nplaceholders: {gained} more launch, {lost} fewer, of {len(on)} (exact p = {p:.4f})"


def render_rate(what: str, hits: int, n: int) -> str:
    low, high = wilson_interval(hits, n)
    return f"{what}: {hits} of {n}, {hits / max(n, 1):.1%} (95% interval {low:.1%} to {high:.1%})"


def read_population() -> dict[str, Listing]:
    """`npm:NAME` or `pypi:NAME` -> listing, of every record with such a package."""
    [path] = sorted((SHARED / "registry-seed").glob("seed_*.json"))
    found = {}
    for record in filter(lambda item: item.get("name"), json.loads(path.read_text("utf-8"))):
        for item in record.get("packages") or []:  # the seed is older than the dated schemas
            item |= {"registry_type": item.get("registry_name"), "identifier": item.get("name")}
        listing = make_server_listing(record, "registry")
        if (package := listing.package) and package.type in ("npm", "pypi"):
            found[f"{package.type}:{package.identifier}"] = listing
    return dict(sorted(found.items()))


if __name__ == "__main__":
    main()
