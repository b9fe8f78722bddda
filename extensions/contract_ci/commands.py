"""The command `contract ci`: it joins the core's group `contract`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_markdown
from warehouse.errors import UnusableInput

_FAIL_ON = ("breaking", "suspicious", "never")
_WITHOUT_SECRETS = frozenset(  # how a server fails that is not given its own
    {"needs_secret", "crashed", "timeout_start", "timeout_list", "protocol_error", "no_tools"}
)


class NoTools(UnusableInput):
    """The server in the folder or list `place` has no tools; kind: of the taxonomy of failures."""

    def __init__(self, place: Path, kind: str, why: str) -> None:
        super().__init__(f"{place}: the server gave no tools: {kind}: {why}")
        self.place = place
        self.kind = kind


def check_change(
    before: Annotated[Path, typer.Argument(help="folder of the base, or a saved tools/list")],
    after: Annotated[Path, typer.Argument(help="folder of the change, or a saved tools/list")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="what starts the server in a folder: -- COMMAND ARGS…"),
    ] = None,
    server: Annotated[str, typer.Option(help="its id in the index, e.g. npm:@scope/name")] = "",
    index: Annotated[
        Path | None, typer.Option(help="home, index or exported release: are there look-alikes?")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="K=V, several times")] = None,
    network: Annotated[str, typer.Option(help="none or full")] = "none",
    fail_on: Annotated[str, typer.Option(help="breaking, suspicious or never")] = "breaking",
    markdown: Annotated[Path | None, typer.Option(help="write the page here too")] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="write the worst here as annotations of GitHub's runner")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Compare the contracts of a server before and after a change: breaking changes with a call
    that shows each, findings of the scan, look-alikes. Exit 1 where it fails, 2 where something is
    wrong with what was given or the changed server gives no tools, 3 where the one before gives
    none."""
    from assets.contracts.tool_diff import require_usable
    from extensions.contract_ci import check
    from serving.index.model import IndexBroken

    if fail_on not in _FAIL_ON:
        fail(f"--fail-on {fail_on!r}: expected one of {', '.join(_FAIL_ON)}", 2)
    try:
        old, new = (_list_tools(entry, command or [], env, network) for entry in (before, after))
        require_usable(old, before)
        name = server or f"private:{after.resolve().name}"
        report = check.check_contracts(old, new)
        if index is not None:
            from serving.adhoc import open_routed

            check.add_lookalikes(report, name, (old, new), open_routed(index))
        page = _write_files(report, fail_on, markdown, annotations)
    except (ValueError, IndexBroken) as error:
        # 3: the server before the change gave no tools by a fault of its own. A missing command or
        # an exceeded limit is a wrong input: 2.
        at_base = isinstance(error, NoTools) and error.place == before
        kind = error.kind if isinstance(error, NoTools) else ""
        fail(str(error), 3 if at_base and kind in _WITHOUT_SECRETS else 2)
    print_json(report) if as_json else print_markdown(page)
    sys.exit(1 if check.is_alarming(report, fail_on) else 0)


def _write_files(
    report: dict[str, Any], fail_on: str, markdown: Path | None, annotations: Path | None
) -> str:
    """The page of a report, which goes into files too where any are named. Raises UnusableInput."""
    from extensions.contract_ci.page import write_annotations, write_page

    page = write_page(report)
    lines = "".join(f"{line}\n" for line in write_annotations(report, fail_on))
    written = (("--markdown", markdown, page), ("--annotations", annotations, lines))
    for option, path, text in written:
        if path is None:
            continue
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            why = f"cannot be written ({error.strerror}): name a file in a folder that is there"
            raise UnusableInput(f"{option} {path}: {why}") from error
    return page


def _list_tools(
    place: Path, command: list[str], env: list[str] | None, network: str
) -> list[dict[str, Any]]:
    """The tools of a saved list, or of the server that the command starts in a folder."""
    from assets.contracts.tool_diff import read_tools

    if not place.is_dir():
        tools = read_tools(place)
        if not tools:
            raise NoTools(place, "no_tools", "the list is empty")
        return tools
    if not command:
        raise UnusableInput(f"{place} is a folder: say what starts the server: -- COMMAND ARGS…")
    from orchestration.cli.servers import run_probe

    probe = run_probe(command, place, env, network, once=True)
    if probe["status"] != "ok":
        raise NoTools(place, probe["status"], probe["hint"])
    return probe["tools"]


app = typer.Typer(name="contract")
app.command("ci")(check_change)
