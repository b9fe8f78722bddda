"""The command `push`: pairs, adapters and merged models into repositories of the hub."""

import os
import re
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)
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
    from extensions.publishing.push.hub import send_uploads
    from extensions.publishing.push.stage import write_uploads
    from training.releases.release import find_release, read_served

    token = os.environ.get("HF_TOKEN", "")
    if not _NAME.fullmatch(name):
        fail(f"{name[:80]!r}: expected ORG/NAME, of letters, digits, '-', '_' and '.'", 2)
    if yes and not token:
        fail("HF_TOKEN is not set: a token of the hub that may write; nothing was sent", 2)
    home = load_settings().home_path()
    wanted = release or read_served(home).get("release")
    models = find_release(home, wanted)["models"] if wanted else {}
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
