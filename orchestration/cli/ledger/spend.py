"""The command `toolmill spend`: what was paid, for what, and per accepted pair."""

import typer

from orchestration.cli.terminal import print_json
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


@app.command()
def spend() -> None:
    """Print what every stage has cost: calls, tokens and US dollars, also per accepted pair and
    marketplace, and unknown attempts."""
    from assets.synthesis.pair_report import count_accepted_pairs, make_spend_rows
    from assets.synthesis.tables import JUDGEMENTS
    from orchestration.factories import open_made_warehouse

    warehouse = open_made_warehouse(load_settings())
    ledger = warehouse.ledger
    accepted, distinct = count_accepted_pairs(warehouse.tables.read(JUDGEMENTS))
    costs = ledger.costs()
    print_json(
        {
            "spent_usd": ledger.spent(),
            "stages": make_spend_rows(costs, accepted, distinct),
            "costs": costs,
            "unknown": [attempt.__dict__ for attempt in ledger.list_unknown()],
        }
    )
