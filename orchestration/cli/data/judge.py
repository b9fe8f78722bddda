"""The command `judge`: pairs in a file, one verdict a line."""

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
def judge(
    pairs: Pairs,
    tools: ToolsFile,
    rules_only: Annotated[
        bool, typer.Option("--rules-only", help="stop after the rules: accept, reject or unsure")
    ] = False,
    as_json: AsJson = True,
) -> None:
    """Check pairs by rules, then by the judge of `roles.judge`, which scores them from 1 to 10.
    Without a model the judge is rules too, and each line says so."""
    from assets.synthesis.judging.adhoc import judge_rows, read_rows, read_tools, verify_rows
    from orchestration.factories import make_embedder, make_writer

    settings = load_settings()
    rows, known = read_rows(pairs), read_tools(tools)
    embed, policy = make_embedder(settings).embed, make_writer(settings).policy
    if rules_only:
        verdicts = verify_rows(rows, known, embed, policy)
    else:
        with _open_judge(settings) as llm:
            verdicts = judge_rows(rows, known, embed, llm, policy)
    for verdict in verdicts:
        print_json(verdict)
    unjudged = [] if rules_only else [row for row in verdicts if row["verdict"] == "unsure"]
    if unjudged:
        why = unjudged[0]["reasons"][-1]
        fail(f"{len(unjudged)} of {len(verdicts)} rows were not judged: {why}", 1)


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
