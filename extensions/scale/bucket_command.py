"""`toolmill bucket`: a folder (an exported release, an export, a folder of backups) published to an
S3-compatible bucket, and fetched from it; and the home, where it lives in one."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extensions.scale.bucket_home_opening.opening import open_bucket_home
from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from extensions.scale.bucket_home.session import BucketHome

app = typer.Typer(
    no_args_is_help=True, help="Folders published to a bucket; the home, where it lives in one."
)

URL = Annotated[str, typer.Argument(help="s3://BUCKET/PREFIX")]


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="an exported release, an export, backups")],
    url: URL,
) -> None:
    """Send what the bucket lacks of a folder, then make it current there; one JSON object."""
    from extensions.scale.bucket.bucket import find_memory, open_bucket
    from extensions.scale.bucket.publish import publish_folder
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
    from extensions.scale.bucket.bucket import find_memory, open_bucket
    from extensions.scale.bucket.publish import fetch_folder

    memory = find_memory(load_settings().state_path(), url)
    try:
        made = fetch_folder(open_bucket(url), out, memory, version)
    except OSError as error:
        fail(f"{out}: nothing was fetched: {error.strerror or error}", 1)
    print_json({"folder": str(out), **asdict(made)})


@app.command()
def status() -> None:
    """What is committed of the home in the bucket, who holds it, and how many files here differ."""
    from extensions.scale.bucket_home.status import describe_home

    print_json(describe_home(_open_home()))


@app.command()
def pull() -> None:
    """Make the folder of the home what is committed; other commands that read do so themselves."""
    home = _open_home()
    fetched = home.refresh(strict=True)
    print_json({"home": str(home.home), **asdict(fetched)})


@app.command()
def commit(
    anew: Annotated[
        bool, typer.Option("--all", help="send again what the bucket has lost of the last commit")
    ] = False,
) -> None:
    """Hold the home, commit what is here, and let go: what a killed run left, outcomes of served
    calls, a home that moves into an empty bucket."""
    from extensions.scale.bucket_home.status import describe_home, refuse_superseded

    home = _open_home()
    refuse_superseded(home)
    with home.hold():
        home.commit(anew=anew)
    print_json(describe_home(home))


def _open_home() -> "BucketHome":
    from warehouse.errors import UnusableInput

    home = open_bucket_home(load_settings(), lambda line: print_line(line, err=True))
    if home is None:
        raise UnusableInput(
            'the home lives on this disk alone; [storage] bucket = "s3://BUCKET/PREFIX" names a'
            " bucket for it"
        )
    return home
