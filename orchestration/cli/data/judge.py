"""The commands `verify` and `judge`: pairs in a file, one verdict a line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings

if TYPE_CHECKING:
    from warehouse.llm.client import LLM

app = typer.Typer(add_completion=False)

Pairs = Annotated[Path, typer.Argument(help="JSON Lines: tool_id, instruction, arguments")]
ToolsFile = Annotated[Path, typer.Option("--tools", help="JSON Lines of servers with their tools")]
AsJson = Annotated[
    bool, typer.Option("--json", show_default=False, help="a JSON line a row (the default)")
]


@app.command()
def verify(pairs: Pairs, tools: ToolsFile, as_json: AsJson = True) -> None:
    """Hold pairs against contracts by rules alone: accept, reject or unsure, in order."""
    from assets.synthesis.judging.adhoc.commands import verify_rows
    from assets.synthesis.judging.adhoc.files import read_rows, read_tools
    from orchestration.factories import make_embedder, make_writer

    settings = load_settings()
    rows, known = read_rows(pairs), read_tools(tools)
    for row in verify_rows(
        rows, known, make_embedder(settings).embed, make_writer(settings).policy
    ):
        print_json(row)


@app.command()
def judge(pairs: Pairs, tools: ToolsFile, as_json: AsJson = True) -> None:
    """Rules first, then the judge of the settings (`roles.judge`): a score from 1 to 10 and a
    verdict per pair. Without a model the judge is rules, and each line says so."""
    from assets.synthesis.judging.adhoc.commands import judge_rows
    from assets.synthesis.judging.adhoc.files import read_rows, read_tools
    from orchestration.factories import make_embedder, make_writer

    settings = load_settings()
    rows, known = read_rows(pairs), read_tools(tools)
    with _open_judge(settings) as llm:
        found = judge_rows(
            rows, known, make_embedder(settings).embed, llm, make_writer(settings).policy
        )
    for row in found:
        print_json(row)
    unjudged = [row for row in found if row["verdict"] == "unsure"]
    if unjudged:
        fail(
            f"{len(unjudged)} of {len(found)} rows were not judged: {unjudged[0]['reasons'][-1]}", 1
        )


@contextmanager
def _open_judge(settings: Settings) -> Iterator["LLM"]:
    """The judge's client: over the ledger when a model is paid, else over one that is thrown away,
    for rules cost nothing and need no home."""
    from orchestration.factories import make_writer, open_warehouse
    from warehouse.store import Warehouse

    if settings.roles.judge.model != "offline":
        yield make_writer(settings).make_llm(open_warehouse(settings), "_")
        return
    with TemporaryDirectory(prefix="toolmill-judge-") as folder:
        yield make_writer(settings).make_llm(Warehouse(Path(folder), Path(folder) / "state"), "_")
