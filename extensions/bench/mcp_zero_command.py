"""The commands `mcp-zero import | export`: MCP-Zero's data file as an index, and back."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import print_json
from orchestration.settings.load import load_settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Servers, tools, vectors as MCP-Zero has them."
)


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="as mcp_tools_with_embedding.json")],
    out: Annotated[Path, typer.Option("--out", help="folder for servers.jsonl and the index")],
    embedder: Annotated[
        str, typer.Option(help="what made its vectors, as for `index`")
    ] = "openai:text-embedding-3-large",
) -> None:
    """Read a file of MCP-Zero's: an index by its own vectors, every tool marked unverified."""
    from extensions.bench.mcp_zero.load import load_dataset

    print_json(load_dataset(file, out, embedder))


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="the file to write")],
    place: Annotated[
        Path | None, typer.Option("--index", help="folder of `index`; default: the served one")
    ] = None,
) -> None:
    """Write an index's servers, tools and vectors as a file that MCP-Zero's code reads."""
    from extensions.bench.mcp_zero.write import export_dataset

    print_json(export_dataset(place or load_settings().home_path(), out))
