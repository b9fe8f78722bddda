"""The commands `push` and `review`: publish what a home made, and label a sample of its pairs."""

import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False, rich_help_panel="Models and releases")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@app.command()
def push(
    name: Annotated[str, typer.Argument(help="ORG/NAME: what the repositories' names begin with")],
    pairs: Annotated[
        Path | None, typer.Option(help="a folder that `export --format hf --out` wrote")
    ] = None,
    release: Annotated[
        str | None, typer.Option(help="as `release list` names it; default: the served one")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="make new repositories public; default: private")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="upload; without it nothing is sent")] = False,
) -> None:
    """Push the release's models, and exported pairs, to the Hugging Face hub, with their cards.
    Without --yes it says what would be uploaded. The token is HF_TOKEN, the hub HF_ENDPOINT."""
    from extensions.publishing.hub_push import send_uploads, write_uploads
    from training.releases.release import find_release, read_served

    token = os.environ.get("HF_TOKEN", "")
    if not _NAME.fullmatch(name):
        fail(f"{name[:80]!r}: expected ORG/NAME, of letters, digits, '-', '_' and '.'", 2)
    if yes and not token:
        fail("HF_TOKEN is not set: a token of the hub that may write; nothing was sent", 2)
    home = load_settings().home_path()
    release_name = release or read_served(home).get("release")
    models = find_release(home, release_name)["models"] if release_name else {}
    with tempfile.TemporaryDirectory(prefix="toolmill-push-") as folder:
        uploads = write_uploads(home, name, models, Path(folder), pairs)
        planned = [
            {"repo": upload.repo, "kind": upload.kind, "files": dict(upload.list_files())}
            for upload in uploads
        ]
        if not yes:
            print_json({"dry_run": True, "uploads": planned})
            return
        endpoint = os.environ.get("HF_ENDPOINT")
        print_json({"pushed": send_uploads(uploads, token, endpoint, private=not public)})


@app.command()
def review(
    sample: Annotated[int, typer.Option(min=1, max=10_000, help="how many pairs")] = 100,
    stage: Annotated[
        Literal["before", "after"],
        typer.Option(help="before: of all written pairs; after: of the accepted ones"),
    ] = "before",
) -> None:
    """Label a random sample of pairs, blind to the judge; then see how the judge agrees.

    The address is printed; each label is kept at once, and the same command goes on where it was
    left. Ends with Finish on the page or Ctrl-C, and prints the report as JSON.
    """
    from assets.contracts.quarantined_tools import read_clear
    from assets.synthesis.tables import JUDGEMENTS, PAIRS, read_contract
    from extensions.publishing.review import ReviewSample, open_review, report_review
    from extensions.publishing.review_server import ReviewSite, serve_review
    from orchestration.factories import open_made_warehouse

    settings = load_settings()
    warehouse = open_made_warehouse(settings)
    tables = warehouse.tables
    pairs = tables.read(PAIRS).to_dicts()
    judgements = tables.read(JUDGEMENTS).to_dicts()
    clear = read_clear(warehouse)
    contracts = {row["contract_digest"]: read_contract(row) for row in clear}
    of = ReviewSample(stage, sample)
    opened = open_review(settings.home_path(), pairs, judgements, of)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        site = ReviewSite(
            opened, contracts, lambda: report_review(opened, judgements), listening.getsockname()[1]
        )
        print_line(f"open {site.url}", err=True)
        typer.launch(site.url)
        serve_review(site, listening)
    print_json(report_review(opened, judgements))
