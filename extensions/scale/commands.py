"""`toolmill bucket`: folders published to an S3-compatible bucket, and fetched from it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

app = typer.Typer(rich_help_panel="Upkeep")
_bucket = typer.Typer(no_args_is_help=True, help="Publish folders to a bucket and fetch them.")
app.add_typer(_bucket, name="bucket")

URL = Annotated[str, typer.Argument(help="s3://BUCKET/PREFIX")]


@_bucket.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="an exported release or another export")], url: URL
) -> None:
    """Upload what the bucket lacks of a folder, then make it current there; prints JSON."""
    from extensions.scale.bucket_folder import publish_folder
    from extensions.scale.bucket_store import find_memory, open_bucket
    from warehouse.errors import UnusableInput

    if not folder.is_dir():
        raise UnusableInput(f"{folder}: there is no such folder")
    memory = find_memory(load_settings().state_path(), url)
    print_json({"bucket": url, **asdict(publish_folder(open_bucket(url), folder, memory))})


@_bucket.command()
def fetch(
    url: URL,
    out: Annotated[Path, typer.Argument(help="a new or empty folder")],
    version: Annotated[
        str | None, typer.Option("--version", help="version that publishing printed")
    ] = None,
) -> None:
    """Download the current version, or another, and check each file against its digest."""
    from extensions.scale.bucket_folder import fetch_folder
    from extensions.scale.bucket_store import find_memory, open_bucket

    memory = find_memory(load_settings().state_path(), url)
    try:
        fetched = fetch_folder(open_bucket(url), out, memory, version or "")
    except OSError as error:
        fail(f"{out}: nothing was fetched: {error.strerror or error}", 1)
    print_json({"folder": str(out), **asdict(fetched)})
