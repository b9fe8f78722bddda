"""The command `review`: a person labels a sample of pairs on a local page."""

import socket
from typing import Annotated, Literal

import typer

from orchestration.cli.data.crawl import require_marketplaces
from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


@app.command()
def review(
    sample: Annotated[int, typer.Option(min=1, max=10_000, help="how many pairs")] = 100,
    stage: Annotated[
        Literal["before", "after"],
        typer.Option(help="before: of all written pairs; after: of the accepted ones"),
    ] = "before",
    marketplace: Annotated[
        str | None, typer.Option("--marketplace", "-m", help="only of this one")
    ] = None,
    seed: Annotated[int, typer.Option(help="of the sample")] = 7,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any free one")] = 0,
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
) -> None:
    """Label a random sample of pairs, blind to the judge; then see how the judge agrees.

    The address is printed; each label is kept at once, and the same command goes on where it was
    left. Ends with Finish on the page or Ctrl-C, and prints the report as JSON.
    """
    from assets.contracts.quarantine.clear import read_clear
    from assets.synthesis.tables import JUDGEMENTS, PAIRS, read_contract
    from extensions.publishing.review.review import Sampled, open_review, report_review
    from extensions.publishing.review.server import Site, serve_review
    from orchestration.factories import open_made_warehouse

    require_marketplaces([marketplace] if marketplace else ())
    settings = load_settings()
    warehouse = open_made_warehouse(settings)
    tables = warehouse.tables
    pairs = tables.read(PAIRS, marketplace).to_dicts()
    judgements = tables.read(JUDGEMENTS, marketplace).to_dicts()
    clear = read_clear(warehouse, marketplace)
    contracts = {row["contract_digest"]: read_contract(row) for row in clear}
    of = Sampled(stage, marketplace, sample, seed)
    found = open_review(settings.home_path(), pairs, judgements, of)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            fail(f"port {port}: {error.strerror}; choose another with --port, or 0 for any", 1)
        site = Site(
            found, contracts, lambda: report_review(found, judgements), listening.getsockname()[1]
        )
        print_line(f"open {site.url}", err=True)
        if browser:
            typer.launch(site.url)
        serve_review(site, listening)
    print_json(report_review(found, judgements))
