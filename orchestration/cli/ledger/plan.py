"""The command `toolmill plan`: what a run would do, what it would cost, and whether that fits."""

from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from orchestration.plan.plan import RunPlan

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    marketplace: Annotated[
        list[str] | None, typer.Option("--marketplace", "-m", help="only these; default: all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """What `toolmill run` would do over what was listed last: new, stale and gone per stage, calls,
    dollars and minutes with the basis of each figure. Sends nothing; exit 1 where it would pass a
    budget."""
    from orchestration.cli.data.crawl import require_marketplaces
    from warehouse.home import require_home

    require_marketplaces(marketplace or ())
    settings = load_settings()
    require_home(settings.home_path())
    from orchestration.plan.plan import make_plan

    print_line("rehearsing what is due; pairs take a while (nothing is sent)", err=True)
    made = make_plan(settings, marketplace)
    print_json(made.as_json()) if as_json else _print_plan(made)
    if made.exceeded:
        fail("; ".join(made.exceeded), 1)


def _print_plan(made: "RunPlan") -> None:
    print_line(made.describe_first_line())
    print_line("")
    print_line("marketplace  stage          new  stale   gone  unchanged  calls")
    for name, stages in made.marketplaces.items():
        for one in stages:
            calls = ", ".join(f"{stage} {count:,}" for stage, count in sorted(one.calls.items()))
            print_line(
                f"{name:<12} {one.stage:<12} {one.new:>5} {one.stale:>6} {one.gone:>6}"
                f" {one.unchanged:>10}  {calls or '-'}{f' ({one.basis})' if calls else ''}"
            )
    print_line("")
    print_line("effects              calls     tokens      USD  minutes  basis of tokens and time")
    for one in made.effects:
        estimated = "" if one.calls == one.counted else f"; {one.counted:,} calls counted"
        print_line(
            f"{one.stage:<16} {one.calls:>9,.0f} {one.tokens:>10,.0f} {one.usd:>8.2f}"
            f" {one.minutes:>8.1f}  {one.basis}{estimated}"
        )
    print_line(f"{'in all':<16} {made.calls:>9,.0f} {'':>10} {made.usd:>8.2f} {made.minutes:>8.1f}")
    for line in made.assumed:
        print_line(f"assumed: {line}")
