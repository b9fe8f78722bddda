"""The command `readme-tools`: the tools that a README names, as a line of a servers file."""

from pathlib import Path
from typing import Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)

_MOST = 4 * 1024 * 1024  # bytes


@app.command("readme-tools")
def readme_tools(
    readme: Annotated[Path, typer.Argument(help="a README in Markdown")],
    server: Annotated[str, typer.Option(help="the server's id or name")],
) -> None:
    """The tools that a README names, for a server that nobody launched: by the model of
    `roles.generator`, or by rules. The line goes into a file for `toolmill index`."""
    from assets.synthesis.readme.extract import extract_tools
    from orchestration.factories import make_writer, open_warehouse
    from warehouse.user_files import read_text

    if not server.strip():
        fail("--server is empty, expected the server's id or name", 2)
    text, settings = read_text(readme, _MOST), load_settings()
    llm = None
    if settings.roles.generator.model != "offline":
        llm = make_writer(settings).make_llm(open_warehouse(settings), "_")
    found = extract_tools(server, text, llm)
    print_json(found.as_server())
    if found.status != "ok":
        fail(f"{readme}: {str(found.hint).removeprefix(f'{found.error_kind}: ')}", 1)
    if not found.tools:
        fail(f"{readme}: it names no tool", 1)
