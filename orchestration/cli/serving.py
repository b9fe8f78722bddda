"""Commands about the meta-server: `serve` and `log`."""

import logging
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import (
    AsJson,
    count_noun,
    fail,
    log_to_terminal,
    print_json,
    print_line,
)
from orchestration.settings.load import allow_models, load_settings
from orchestration.settings.model import Settings
from orchestration.settings.sections import derive_policy
from warehouse.sanitize.untrusted_text import shorten_text

if TYPE_CHECKING:
    from assets.servers.calls.caller import ToolCaller
    from assets.servers.calls.log import CallLog
    from orchestration.settings.schema import ServeSection
    from serving.meta.policy import HttpSettings
    from serving.router import ServedRouter

app = typer.Typer()


_LONGEST_PATH = 500  # characters of it in the log


@app.command()
def serve(
    place: Annotated[
        Path | None,
        typer.Option(help="an exported release or a folder of `index`; default: the data folder"),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="streamable HTTP in place of standard input and output")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="with --http; default 8930; 0: any")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="TOML or JSON file of who may ask; with --http")
    ] = None,
    trust: Annotated[
        list[Path] | None,
        typer.Option(help="public key (PEM); serve only a release signed by one of these"),
    ] = None,
    new_token: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="only make a token: its secret, and the entry for the tokens file"
        ),
    ] = None,
) -> None:
    """Serve the MCP meta-server: find_tools, describe_tool, call_tool and report_outcome."""
    from serving.export import open_served
    from serving.meta.access_control import make_token
    from serving.meta.listing import find_unused_pins
    from serving.meta.policy import LOCAL, ClientToken, MetaPolicy
    from serving.meta.transports import run_http, run_stdio

    if new_token is not None:
        secret, digest = make_token()
        ClientToken(new_token, digest)  # refuses a name that the tokens file could not hold
        print_json({"secret": secret, "entry": {"name": new_token, "sha256": digest}})
        return
    for name, value in {"--port": port, "--tokens": tokens}.items():
        if value is not None and not http:
            fail(f"{name} goes with --http; without it, one client is served over stdio", 2)
    settings = load_settings()
    log_to_terminal()
    chosen = settings.serve
    local = replace(LOCAL, remember=chosen.log.remember, traces=chosen.log.traces)
    more: dict[str, Any] = {"local": local}
    more |= {"learning": settings.reliability} if chosen.log.learn else {}
    policy = derive_policy(MetaPolicy, chosen.calls, **more)
    listening = _make_http(chosen, tokens, port) if http else None
    allow_models(settings)
    where = place or settings.home_path()
    # An exported release is opened only as it was exported, with keys only as one signed it.
    router = open_served(where, trust)
    for pattern in find_unused_pins(router.current().index, policy.pinned):
        logging.warning("serve.calls.pinned: no launched tool of this index fits %r", pattern)
    logging.info("home: %s", shorten_text(str(where), _LONGEST_PATH))
    outcomes = open_call_log(settings, where)
    tokens_known = len(listening.tokens) if listening else 0
    caller = make_caller(settings, router, tokens_known) if chosen.calls.enabled else None
    if listening is None:
        run_stdio(router, caller, policy, outcomes)
    else:
        run_http(router, caller, policy, outcomes, listening)


def open_call_log(settings: Settings, place: Path) -> "CallLog":
    from assets.servers.calls.log import CallLog
    from serving.export import find_log_place

    return CallLog(find_log_place(place, settings.state_path()), settings.serve.log.days)


def _make_http(serve: "ServeSection", file: Path | None, port: int | None) -> "HttpSettings":
    from serving.meta.access_control import build_token, read_tokens
    from serving.meta.policy import HttpSettings

    chosen = serve.http
    file = file or chosen.tokens
    tokens = read_tokens(file) if file else ()
    if chosen.token:
        secret = chosen.token.get_secret_value()
        kept = {"remember": serve.log.remember, "traces": serve.log.traces}
        tokens = (*tokens, build_token(secret, **kept))
    port = chosen.port if port is None else port
    return derive_policy(HttpSettings, chosen, tokens=tokens, port=port)


def make_caller(settings: Settings, router: "ServedRouter", tokens: int) -> "ToolCaller":
    """Runs tools by the recipes of the index then served; each token has its share of places."""
    from assets.servers.calls.caller import CallLimits, ToolCaller
    from orchestration.settings.deploy_policy import make_deploy_policy

    share = max(1, settings.serve.warm.sessions // max(1, tokens))
    return ToolCaller(
        lambda server_id: router.current().index.recipe(server_id),
        make_deploy_policy(settings),
        derive_policy(CallLimits, settings.serve.warm, share=share),
    )


@app.command()
def log(
    delete: Annotated[
        bool, typer.Option("--delete", help="delete the lines that all filters below fit, for good")
    ] = False,
    token: Annotated[str | None, typer.Option(help="lines under this token's name")] = None,
    client: Annotated[str | None, typer.Option(help="lines of this client: `name version`")] = None,
    query: Annotated[str | None, typer.Option(help="lines of this query, in its words")] = None,
    before: Annotated[str | None, typer.Option(help="lines of the days before YYYY-MM-DD")] = None,
    place: Annotated[Path | None, typer.Option(help="as of `serve`; default: the home")] = None,
    as_json: AsJson = False,
) -> None:
    """List how much the log of calls and searches remembers per token, or delete from it.

    A server may go on running."""
    from assets.servers.calls.log import DeletionSubject, count_lines, remove_lines

    settings = load_settings()
    folder = place or settings.home_path()
    if not folder.is_dir():
        fail(f"{folder}: no such folder", 2)
    lines_of = open_call_log(settings, folder)
    if not delete:
        if (token, client, query, before) != (None,) * 4:
            fail("--token, --client, --query and --before go with --delete", 2)
        rows = count_lines(lines_of)
        if as_json:
            print_json(rows)
            return
        for row in rows:
            nouns = {"lines": "line", "searches": "search", "queries": "query"}
            counts = ", ".join(count_noun(row[name], noun) for name, noun in nouns.items())
            print_line(f"{row['token'] or '-'}  {counts} kept, {row['first']} to {row['last']}")
        if not rows:
            print_line("nothing is kept yet")
        return
    try:
        day = None if before is None else date.fromisoformat(before)
    except ValueError:
        fail(f"--before {str(before)[:40]!r}: expected YYYY-MM-DD", 2)
    subject = DeletionSubject(token, client, query, day)
    counts = remove_lines(lines_of, subject)
    for name, count in remove_lines(lines_of.traces, subject).items():
        counts[name] += count
    if as_json:
        print_json(counts)
        return
    lines, files = count_noun(counts["deleted"], "line"), count_noun(counts["files"], "file")
    print_line(f"deleted {lines} of {files}")
    if counts["unreadable"]:
        print_line(f"and {counts['unreadable']} that were cut short, of unknown tokens")
