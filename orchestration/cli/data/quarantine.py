"""Commands about held tools: `toolmill quarantine list | release | hold`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from warehouse.store import Warehouse

app = typer.Typer(
    name="quarantine", no_args_is_help=True, add_completion=False, help="Tools that are kept out."
)

DIGEST = typer.Argument(help="c1:…, as `quarantine list` prints it")
BY = typer.Option("--by", help="who decides")
WHY = typer.Option("--why", help="what was read and why it is so")
JSON = typer.Option("--json", help="one JSON object")


@app.callback()
def quarantine() -> None:
    """Tools that are kept out of prompts, embeddings, training rows and the served index."""


@app.command("list")
def list_held(as_json: Annotated[bool, JSON] = False) -> None:
    """Held tools and what holds them; excerpts are escaped."""
    from assets.contracts.quarantined_tools import list_held_tools
    from orchestration.factories import open_made_warehouse

    rows = list_held_tools(open_made_warehouse(load_settings()))
    tools = len({(row["server_id"], row["tool"], row["contract_digest"]) for row in rows})
    if as_json:
        print_json({"held": rows, "tools": tools})
        return
    for row in rows:
        who = f"  by {row['by']}" if row["by"] else ""
        print_line(f"{row['server_id']}  {row['tool']}  {row['rule']} ({row['severity']}){who}")
        print_line(f"    {row['contract_digest']}")
        print_line(f"    {row['excerpt'] or row['why']}")
    print_line(f"{tools} tools are held")


@app.command()
def release(
    contract_digest: Annotated[str, DIGEST],
    rule: Annotated[str, typer.Option(help="the rule whose finding was read; * lifts a hold")],
    by: Annotated[str, BY],
    why: Annotated[str, WHY],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Let one contract in although this rule fired; each rule that fired is released by itself."""
    _decide(contract_digest, rule, "released", by, why, as_json)


@app.command()
def hold(
    contract_digest: Annotated[str, DIGEST],
    by: Annotated[str, BY],
    why: Annotated[str, WHY],
    rule: Annotated[str, typer.Option(help="a rule, or * for the contract as a whole")] = "*",
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Keep one contract out, whatever was found."""
    _decide(contract_digest, rule, "held", by, why, as_json)


def _decide(digest: str, rule: str, verdict: str, by: str, why: str, as_json: bool) -> None:
    from assets.contracts.quarantined_tools import decide_on_tool
    from orchestration.factories import open_made_warehouse

    _fail_usage(digest, by, why)
    warehouse = open_made_warehouse(load_settings())
    decision = decide_on_tool(warehouse, digest, rule=rule, verdict=verdict, by=by, why=why)
    _block_tools(warehouse)
    print_json(decision) if as_json else _print_held(decision)


def _block_tools(warehouse: "Warehouse") -> None:
    """Keeps what is held now out of the answers of the index that is served now."""
    from assets.contracts.quarantined_tools import DecisionError
    from extensions.upkeep.takedown.block import block_tools

    try:
        block_tools(warehouse)
    except DecisionError as error:  # the decision itself is kept
        print_line(f"searches go on as before: {error}", err=True)


def _fail_usage(digest: str, by: str, why: str) -> None:
    """Ends the command where an argument says nothing."""
    if not digest.startswith("c1:"):
        fail(f"{digest[:80]!r} is no contract digest: expected c1:…", 2)
    for name, text in (("--by", by), ("--why", why)):
        if not text.strip():
            fail(f"{name} is empty, expected a text", 2)


def _print_held(decision: dict[str, Any]) -> None:
    for tool in decision["tools"]:
        print_line(
            f"{decision['verdict']}  {tool['server_id']}  {tool['tool']}  {decision['rule']}"
        )
    print_line("searches leave held tools out from now on; all else follows with the next run")
