"""Commands about marketplaces: `crawl` and `demo-marketplaces`."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from orchestration.cli.terminal import AsJson, fail, print_json, print_line, report_lines
from orchestration.settings.load import SettingsError, explain_errors, load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from assets.marketplaces.policy import MarketplaceAdapter

app = typer.Typer()
_SHOWN = 20


@app.command()
def crawl(
    marketplace: Annotated[
        str, typer.Argument(help="registry, smithery, glama, … or a package's own adapter")
    ],
    page_cap: Annotated[
        int | None, typer.Option(min=1, help="at most so many pages: of its list, of servers")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read one marketplace now, without writing a table.

    Exit 1 where it failed or lacks a key."""
    from assets.marketplaces.crawl.crawl import load_adapter
    from orchestration.factories import make_crawl_policy

    chosen = load_settings()
    require_marketplaces([marketplace])
    policy = make_crawl_policy(chosen, marketplace)
    if page_cap is not None:
        policy = replace(policy, page_cap=page_cap, detail_cap=page_cap)
    adapter = load_adapter(marketplace, policy)
    with nullcontext() if marketplace == "private" else open_replicas(chosen):
        report = _crawl_once(chosen, marketplace, adapter)
    print_json(report) if as_json else _print_listings(report)
    if report["completeness"] in ("failed", "skipped: key missing"):
        fail(report["problems"][0]["hint"], 1)


@app.command(hidden=True)
def parse(
    marketplace: Annotated[str, typer.Argument(help="private: the config file of an MCP client")],
    file: Annotated[Path, typer.Argument(help="e.g. ~/.cursor/mcp.json", exists=True)],
) -> None:
    """Read the servers of one client's config file, as `crawl private` does; exit 1 without any."""
    from assets.marketplaces.crawl.crawl import load_adapter
    from orchestration.factories import make_crawl_policy

    if marketplace != "private":
        fail(f"{marketplace!r} is read by `toolmill crawl`; `parse` reads files of `private`", 2)
    chosen = load_settings()
    policy = replace(make_crawl_policy(chosen, marketplace), paths=(file,))
    report = _crawl_once(chosen, marketplace, load_adapter(marketplace, policy))
    print_json(report["listings"])
    for problem in report["problems"]:
        print_line(problem["hint"], err=True)
    if not report["listings"]:
        fail("no server is listed", 1)


def _crawl_once(
    chosen: Settings, marketplace: str, adapter: "MarketplaceAdapter"
) -> dict[str, Any]:
    from assets.marketplaces.crawl.crawl import crawl as crawl_once
    from assets.marketplaces.crawl.result import summarise_crawl, summarise_failure
    from assets.marketplaces.policy import CrawlError
    from orchestration.factories import open_warehouse

    warehouse = open_warehouse(chosen)
    scope = f"{marketplace} ad hoc"
    try:
        result = crawl_once(
            adapter,
            ledger=warehouse.ledger,
            memo=warehouse.memo,
            run_date=f"ad hoc {warehouse.ledger.open_run(scope)}",
            progress=report_lines(),
        )
        return summarise_crawl(result)
    except CrawlError as error:
        return summarise_failure(marketplace, error)
    finally:
        warehouse.ledger.close_run(scope)


def _print_listings(report: dict[str, Any]) -> None:
    listings = report["listings"]
    runnable = sum(listing["runnable"] for listing in listings)
    print_line(f"{report['marketplace']}: {report['completeness']}, {len(listings)} listings")
    print_line(f"  {runnable} runnable, {len(report['problems'])} problems")
    for listing in listings[:_SHOWN]:
        what = listing["url"] or " ".join([listing["command"] or "", *listing["args"]]).strip()
        print_line(f"  {listing['native_id'][:44]:<44} {(what or listing['reason'] or '')[:80]}")
    if len(listings) > _SHOWN:
        print_line(f"  … {len(listings) - _SHOWN} more: --json shows all")


@app.command("demo-marketplaces")
def demo_marketplaces(
    day: Annotated[int | None, typer.Option(help="1 or 2; default: the setting demo.day")] = None,
    scale: Annotated[str | None, typer.Option(help="small, standard, large or full")] = None,
) -> None:
    """Serve replicas of nine marketplaces on loopback until interrupted."""
    from demo.server import serve

    full = scale == "full"
    chosen = change_demo(load_settings(), day, None if full else scale)
    try:
        serve(
            day=chosen.demo.day,
            scale="full" if full else chosen.demo.scale,
            ports=chosen.demo.ports(),
            ready=print_json,
        )
    except (ValueError, OSError) as error:
        fail(str(error), 2)


def change_demo(chosen: Settings, day: int | None, scale: str | None) -> Settings:
    changes = {name: value for name, value in (("day", day), ("scale", scale)) if value is not None}
    if not changes:
        return chosen
    wrong: list[str] = []
    try:
        demo = type(chosen.demo)(**{**chosen.demo.model_dump(), **changes})
        return chosen.model_copy(update={"demo": demo})
    except ValidationError as error:
        wrong = explain_errors(error, {name: f"--{name}" for name in changes})
    raise SettingsError("\n".join(wrong))


def open_replicas(chosen: Settings) -> Any:
    """The demo marketplaces for the time of a block: those that are up already (started by
    `toolmill demo-marketplaces` or `toolmill dev`), else our own. None for live marketplaces."""
    if chosen.source == "live":
        return nullcontext()
    from demo.ports import find_running
    from demo.server import replicas

    ports = chosen.demo.ports()
    up = find_running(ports)
    if up:
        line = f"demo marketplaces are up already ({', '.join(sorted(up))})"
        print_line(f"{line}, and end with the process that started them", err=True)
        return nullcontext()
    return replicas(day=chosen.demo.day, scale=chosen.demo.scale, ports=ports)


def require_marketplaces(names: Iterable[str]) -> None:
    from assets.marketplaces.installed import list_installed

    unknown = sorted(set(names) - set(list_installed()))
    if unknown:
        fail(f"unknown marketplace {unknown[0]!r}; known: {', '.join(list_installed())}", 2)
