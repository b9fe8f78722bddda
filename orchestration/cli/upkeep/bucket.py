"""`toolmill bucket`: a folder (an exported release, an export, a folder of backups) published to an
S3-compatible bucket, and fetched from it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

app = typer.Typer(no_args_is_help=True, help="Folders published to a bucket, and fetched from it.")

URL = Annotated[str, typer.Argument(help="s3://BUCKET/PREFIX")]


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="an exported release, an export, backups")],
    url: URL,
) -> None:
    """Send what the bucket lacks of a folder, then make it current there; one JSON object."""
    from warehouse.bucket.bucket import find_memory, open_bucket
    from warehouse.bucket.publish import publish_folder
    from warehouse.errors import UnusableInput

    if not folder.is_dir():
        raise UnusableInput(f"{folder}: there is no such folder")
    memory = find_memory(load_settings().state_path(), url)
    print_json({"bucket": url, **asdict(publish_folder(open_bucket(url), folder, memory))})


@app.command()
def fetch(
    url: URL,
    out: Annotated[Path, typer.Argument(help="a new or empty folder")],
    version: Annotated[
        str | None, typer.Option("--version", help="as publishing named it; default: the current")
    ] = None,
) -> None:
    """Make a folder of what is current in a bucket, each file held against its digest."""
    from warehouse.bucket.bucket import find_memory, open_bucket
    from warehouse.bucket.publish import fetch_folder

    memory = find_memory(load_settings().state_path(), url)
    try:
        made = fetch_folder(open_bucket(url), out, memory, version)
    except OSError as error:
        fail(f"{out}: nothing was fetched: {error.strerror or error}", 1)
    print_json({"folder": str(out), **asdict(made)})
