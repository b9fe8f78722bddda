"""The command `proxy`: an OpenAI-compatible API whose tool calls are repaired on the way."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, log_to_terminal, print_line

if TYPE_CHECKING:
    from extensions.proxy.calls import CallReviser
    from extensions.proxy.local_upstream import LocalUpstream
    from extensions.proxy.traces import TraceKeeper
    from extensions.proxy.upstream import ProxySettings
    from serving.router import ServedRouter

CHAMPION, LOCAL = "champion", "local:"
app = typer.Typer(add_completion=False, rich_help_panel="Search and serve")
_LOOP = {"use_uvloop": sys.platform != "win32"}


@app.command()
def proxy(
    model: Annotated[
        str, typer.Argument(help="with --local: a caller's name or folder, constrained:NAME")
    ] = CHAMPION,
    upstream: Annotated[
        str, typer.Option(help="base address, like https://api.openai.com/v1")
    ] = "",
    local: Annotated[
        bool, typer.Option("--local", help="answer with a model that runs here: MODEL")
    ] = False,
    first_call: Annotated[
        bool, typer.Option("--first-call", help="with --upstream: MODEL writes only the first call")
    ] = False,
    host: Annotated[str, typer.Option(help="beyond this machine only with a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8929,
    token: Annotated[
        str, typer.Option(envvar="PROXY_TOKEN", help="secret that clients send, 20 characters")
    ] = "",
    key_env: Annotated[
        str, typer.Option(help="variable with the upstream's key; default: the client's is sent on")
    ] = "",
    history: Annotated[
        Path | None,
        typer.Option(help="history.json, or a folder with a served index: names that changed"),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(help='a release, an index or a home: picks tools where `tools` is "auto"'),
    ] = None,
    tool_search: Annotated[
        bool, typer.Option("--tool-search", help="answer the searches for tools that models make")
    ] = False,
    traces: Annotated[
        bool, typer.Option("--traces", help="keep calls of known tools in the home, redacted")
    ] = False,
    revise: Annotated[
        str, typer.Option(help="rewrites calls that are left: a model of the upstream, local:NAME")
    ] = "",
) -> None:
    """An OpenAI-compatible proxy: tool calls that do not fit their tool are repaired on the way."""
    import anyio

    from extensions.proxy.app import ProxyParts, run_proxy
    from extensions.proxy.auto_tools import ToolChooser
    from extensions.proxy.tool_search import ToolSearch
    from extensions.proxy.upstream import ProxySettings, make_listening
    from serving.repair.ladder import read_history_place

    _refuse_contradictions(model, upstream, local, first_call, tool_search, revise)
    key = os.environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        fail(f"--key-env {key_env[:60]!r}: no such variable is set, or it is empty", 2)
    known = read_history_place(place) if (place := history or index) else None
    settings = ProxySettings(upstream, key, history=known)
    served = _open_served(index) if index else None
    parts = ProxyParts(
        chooser=ToolChooser(served) if served else None,
        local=_open_local(model) if local or first_call else None,
        reviser=_open_reviser(revise, settings) if revise else None,
        search=ToolSearch(served) if tool_search else None,
        traces=_open_traces() if traces else None,
    )
    log_to_terminal()
    # It logs the address of each request, query included.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    listening = make_listening(host, port, token)
    anyio.run(run_proxy, settings, listening, parts, backend_options=_LOOP)


def _refuse_contradictions(
    model: str, upstream: str, local: bool, first_call: bool, tool_search: bool, revise: str
) -> None:
    """Ends the command where options contradict each other."""
    if model != CHAMPION and not (local or first_call):
        fail(f"MODEL {model[:60]!r}: give --local or --first-call with it", 2)
    if revise and not (upstream or revise.startswith(LOCAL)):
        fail("--revise: needs --upstream, which has this model, or local:NAME", 2)
    if upstream and local:
        fail("--local answers without an upstream; to use it with one, give --first-call", 2)
    for option, given in (("--first-call", first_call), ("--tool-search", tool_search)):
        if given and not upstream:
            fail(f"{option}: needs --upstream, whose model it goes with", 2)
    if not (upstream or local):
        fail("give --upstream ADDRESS, or --local to answer with a model that runs here", 2)


def _open_local(model: str) -> "LocalUpstream":
    """The champion caller or the one that is named, loaded now."""
    from extensions.proxy.local_caller import LocalCaller
    from extensions.proxy.local_upstream import LocalUpstream
    from orchestration.cli.evaluation import load_caller
    from orchestration.settings.load import load_settings
    from training.releases.in_service import find_model_in_service

    settings = load_settings()
    if model == CHAMPION:
        champion = find_model_in_service(settings.home_path(), "caller")
        model = champion.model
        if champion.notice:
            print_line(champion.notice, err=True)
    return LocalUpstream(LocalCaller(load_caller(settings, model)))


def _open_reviser(name: str, settings: "ProxySettings") -> "CallReviser":
    """A model of the upstream, or with `local:` a sidecar that runs here, loaded now: `champion`,
    its name or its folder."""
    from extensions.proxy.calls import CallReviser, UpstreamReviser, guard_model

    if not name.startswith(LOCAL):
        return CallReviser(name, UpstreamReviser(settings.find_base(), name, settings.key))
    from orchestration.cli.evaluation import open_reviser as load_reviser
    from orchestration.settings.load import load_settings

    name = name.removeprefix(LOCAL)
    return CallReviser(name, guard_model(load_reviser(load_settings(), name)))


def _open_traces() -> "TraceKeeper":
    from extensions.proxy.traces import TraceKeeper
    from orchestration.cli.serving import open_call_log
    from orchestration.factories import open_made_warehouse
    from orchestration.settings.load import load_settings

    settings = load_settings()
    return TraceKeeper(open_made_warehouse(settings), open_call_log(settings, settings.home_path()))


def _open_served(place: Path) -> "ServedRouter":
    """What a place serves; one without an index is refused now, not at the first client."""
    from orchestration.settings.load import allow_models, load_settings
    from serving.export import open_served

    allow_models(load_settings())
    served = open_served(place)
    served.current()
    return served
