"""The command `scan`: poisoned tools in a saved list."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from warehouse.user_files import parse_json, read_text

app = typer.Typer(add_completion=False)

FILE_CAP = 64 * 1024 * 1024  # bytes
TOOLS_CAP = 20_000
_OF_A_TOOL = frozenset(("description", "inputSchema", "outputSchema", "annotations", "title"))


@app.command()
def scan(
    tools: Annotated[Path, typer.Argument(help="a tools/list result, a list of tools or one tool")],
    before: Annotated[
        Path | None, typer.Option(help="an earlier list: what became alarming since then")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Look for prompt injection and poisoning in tools; exit 1 where a finding is high."""
    from assets.contracts.scan import HIGH, find_rug_pulls, scan_list

    listed = _read_tools(tools)
    findings = scan_list(listed)
    if before is not None:
        findings += find_rug_pulls(_read_tools(before), listed)
    high = sum(finding.severity == HIGH for finding in findings)
    if as_json:
        rows = [finding.as_row() for finding in findings]
        print_json({"findings": rows, "tools": len(listed), "high": high})
    else:
        for found in findings:
            print_line(f"{found.severity:<6} {found.rule}  {found.tool}  {found.field[:80]}")
            print_line(f"       {found.excerpt}")
        print_line(f"{len(listed)} tools, {len(findings)} findings, {high} high")
    if high:
        raise typer.Exit(1)


def _read_tools(path: Path) -> list[Any]:
    """The tools of a file; ends the command in one line where it holds none."""
    found = parse_json(read_text(path, FILE_CAP), path)
    listed = _unwrap_tools(found)
    if listed is None:
        fail(f"{path}: no tools found; expected a tools/list result, a list of tools or a tool", 2)
    if len(listed) > TOOLS_CAP:
        fail(f"{path}: {len(listed)} tools, at most {TOOLS_CAP} are read", 2)
    return listed


def _unwrap_tools(found: Any) -> list[Any] | None:
    """The tools of any of the accepted shapes, a JSON-RPC answer and pages of answers included."""
    if isinstance(found, dict):
        for key in ("result", "tools"):
            if isinstance(found.get(key), dict | list):
                return _unwrap_tools(found[key]) if key == "result" else _find_tool_list(found[key])
        is_tool = isinstance(found.get("name"), str) and not _OF_A_TOOL.isdisjoint(found)
        return [found] if is_tool else None
    return _find_tool_list(found)


def _find_tool_list(found: Any) -> list[Any] | None:
    if not isinstance(found, list):
        return None
    if found and all(isinstance(one, dict) and isinstance(one.get("tools"), list) for one in found):
        return [tool for page in found for tool in page["tools"]]
    return found if all(isinstance(one, dict) for one in found) else None
