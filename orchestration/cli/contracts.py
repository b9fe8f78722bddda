"""Commands: `contract`, `scan`, `quarantine` and `repair`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration.cli.terminal import (
    AsJson,
    By,
    Why,
    count_noun,
    fail,
    print_json,
    print_line,
    require_texts,
)
from orchestration.settings.load import load_settings

app = typer.Typer()
contract_app = typer.Typer(no_args_is_help=True, help="Compare and list tool contracts.")
app.add_typer(contract_app, name="contract")


@contract_app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="a tools/list result, its bare list or one tool")],
    new: Annotated[Path, typer.Argument(help="the same server's later one")],
    as_json: AsJson = False,
) -> None:
    """Compare two tools/list results; exit 1 where a change is breaking or suspicious."""
    from assets.contracts.tool_diff import diff_files

    report = diff_files(old, new)
    for line in report.left_out:
        print_line(line, err=True)
    print_json(report.answer) if as_json else _print_changes(report.answer)
    if report.alarming:
        sys.exit(1)


@contract_app.command()
def history(
    server_id: Annotated[str, typer.Argument(help="as in the snapshots, e.g. npm:@scope/name")],
    as_json: AsJson = False,
) -> None:
    """List every contract a server was seen with, and what changed."""
    from assets.contracts.changes import collect_history
    from orchestration.factories import open_made_warehouse

    report = collect_history(open_made_warehouse(load_settings()).tables, server_id)
    print_json(report) if as_json else _print_history(report)


def _print_history(report: dict[str, Any]) -> None:
    for tool in report["tools"]:
        print_line(tool["tool"])
        for version in tool["contracts"]:
            now = "now" if version["current"] else "   "
            times = f"{version['first_seen']} to {version['last_seen']}"
            print_line(f"  {now} {times} {version['contract_digest']}")
    for change in report["changes"]:
        print_line(f"{change['run_date']} {change['class']:<10} {change['tool']}: {change['why']}")


def _print_changes(answer: dict[str, Any]) -> None:
    for change in answer["changes"]:
        renamed = f" (was {change['renamed_from']})" if change["renamed_from"] else ""
        print_line(f"{change['class']:<10} {change['tool']}{renamed}: {change['why']}")
    print_line(f"{len(answer['changes'])} changed, {answer['same']} the same")


@app.command()
def scan(
    tools: Annotated[Path, typer.Argument(help="a tools/list result, a list of tools or one tool")],
    before: Annotated[
        Path | None, typer.Option(help="an earlier list: what became alarming since then")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search tools for prompt injection and poisoning; exit 1 where a finding is high."""
    from assets.contracts.canonical import index_contracts
    from assets.contracts.scan import HIGH, find_rug_pulls, scan_list
    from assets.contracts.tool_diff import read_tools, require_usable

    tool_list = read_tools(tools)
    for place, problem in index_contracts(tool_list)[1].items():
        print_line(f"{tools}, entry {place}: no usable contract: {problem}"[:300], err=True)
    findings = scan_list(tool_list)
    if before is not None:
        findings += find_rug_pulls(read_tools(before), tool_list)
    high = sum(finding.severity == HIGH for finding in findings)
    if as_json:
        rows = [finding.as_row() for finding in findings]
        print_json({"findings": rows, "tools": len(tool_list), "high": high})
    else:
        for finding in findings:
            where = f"{finding.rule}  {finding.tool}  {finding.field[:80]}"
            print_line(f"{finding.severity:<6} {where}")
            print_line(f"       {finding.excerpt}")
        counts = count_noun(len(tool_list), "tool"), count_noun(len(findings), "finding")
        print_line(f"{', '.join(counts)}, {high} high")
    if high:
        raise typer.Exit(1)
    require_usable(tool_list, tools)


@app.command()
def quarantine(
    contract_digest: Annotated[
        str | None, typer.Argument(help="c1:…, as the list without arguments prints it")
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", help="keep the contract out")] = False,
    release: Annotated[
        str | None, typer.Option(help="the rule whose finding was read; * lifts a hold as a whole")
    ] = None,
    by: By = "",
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """List the tools that are kept out, or decide on the contract of one.

    Each rule that fired is released by itself."""
    from assets.contracts.quarantined_tools import decide_on_tool, list_held_tools
    from orchestration.factories import open_made_warehouse

    if contract_digest is None:
        if hold or release:
            fail("--hold and --release need the digest of a contract", 2)
        _print_held(list_held_tools(open_made_warehouse(load_settings())), as_json)
        return
    if hold == bool(release):
        fail("give --hold, or --release RULE", 2)
    if not contract_digest.startswith("c1:"):
        fail(f"{contract_digest[:80]!r} is no contract digest: expected c1:…", 2)
    require_texts(by=by, why=why)
    verdict, warehouse = ("held" if hold else "released"), open_made_warehouse(load_settings())
    decision = decide_on_tool(
        warehouse, contract_digest, rule=release or "*", verdict=verdict, by=by, why=why
    )
    # Keeps what is held now out of the answers of the index that is served now.
    from assets.contracts.quarantined_tools import DecisionError
    from orchestration.tool_blocks import block_tools

    try:
        block_tools(warehouse)
    except DecisionError as error:  # the decision itself is kept
        print_line(f"searches go on as before: {error}", err=True)
    if as_json:
        print_json(decision)
        return
    for tool in decision["tools"]:
        print_line(f"{verdict}  {tool['server_id']}  {tool['tool']}  {decision['rule']}")
    held = "searches leave it out from now on; the rest follows with the next run"
    print_line(
        held if hold else "back with the next run at the latest, unless another rule holds it"
    )


def _print_held(rows: list[dict[str, Any]], as_json: bool) -> None:
    tools = len({(row["server_id"], row["tool"], row["contract_digest"]) for row in rows})
    if as_json:
        print_json({"held": rows, "tools": tools})
        return
    for row in rows:
        who = f"  by {row['by']}" if row["by"] else ""
        print_line(f"{row['server_id']}  {row['tool']}  {row['rule']} ({row['severity']}){who}")
        print_line(f"    {row['contract_digest']}")
        print_line(f"    {row['excerpt'] or row['why']}")
    print_line(f"tools held: {tools}")


@app.command()
def repair(
    call: Annotated[Path, typer.Argument(help="a call in any vendor's JSON, or a model's text")],
    tools: Annotated[Path, typer.Option(help="the request's tools: OpenAI, Anthropic, MCP")],
    conversation: Annotated[
        Path | None, typer.Option(help="the request's messages: what values they hold")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="history.json, or a folder with a served index")
    ] = None,
    revise: Annotated[
        str | None,
        typer.Option(
            help="a model for what rules leave: champion, a sidecar's name or folder,"
            " endpoint:ROLE_or_MODEL"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Repair a draft call, or ask one precise question.

    Exit 0 when every call of the file fits or is repaired, 1 when one is left as it was."""
    from orchestration.cli.evaluation import open_reviser
    from serving.repair.ladder import repair_files
    from serving.repair.rungs import ABSTAINED

    model = open_reviser(load_settings(), revise) if revise else None
    reports = repair_files(call, tools, conversation, history, model)
    for report in reports:
        if as_json:
            print_json(report.as_dict())
            continue
        print_line(f"{report.name[:80] or 'no call'}: {report.outcome} ({report.ms:.1f} ms)")
        for rung in report.rungs if report.changed else ():
            for change in rung.what:
                print_line(f"  {rung.rung:<8}  {change}")
        if report.reason is not None:
            print_line(f"  {report.reason.kind}: {report.reason.question}")
        if report.changed:
            print_line(report.text)
    sys.exit(1 if any(report.outcome == ABSTAINED for report in reports) else 0)
