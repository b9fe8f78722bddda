"""The commands `release export` and `release check`: what is served, as a folder of its own.

What belongs here: their arguments and what they print. What does not: anything they decide.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.settings import load_settings
from orchestration.terminal import print_json

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The release that is served.")


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="a new or empty folder")],
) -> None:
    """Copy the served index with its encoder: `toolmill serve --place OUT` needs nothing else."""
    from serving.exported import export_release

    print_json(_shown(out, export_release(load_settings().home_path(), out)))


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="an exported release")]) -> None:
    """Hold every file of an exported release against its manifest."""
    from serving.exported import check_export

    print_json(_shown(folder, check_export(folder)))


def _shown(folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    return {**told, "folder": str(folder), "files": len(told["files"])}
