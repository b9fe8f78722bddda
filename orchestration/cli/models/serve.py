"""The command `serve`: the meta-server over stdio or HTTP."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json
from orchestration.settings.model import Settings, load_settings

if TYPE_CHECKING:
    from assets.servers.calls.caller import Caller
    from serving.meta.access.policy import HttpSettings, MetaPolicy
    from serving.router import ServedRouter

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    place: Annotated[
        Path | None,
        typer.Option(help="an exported release or a folder of `index`; default: the data folder"),
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="streamable HTTP in place of standard input and output")
    ] = False,
    host: Annotated[str | None, typer.Option(help="with --http; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="with --http; default 8930")] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="TOML or JSON file of who may ask; with --http")
    ] = None,
    consent: Annotated[
        str | None, typer.Option(help="ask, never or always, where the client cannot ask its user")
    ] = None,
    calls: Annotated[
        bool | None, typer.Option("--calls/--no-calls", help="whether tools may be called")
    ] = None,
) -> None:
    """The MCP meta-server: find_tools, describe_tool, call_tool, report_outcome for any client."""
    from assets.servers.calls.log import Outcomes
    from serving.meta.access.policy import TokenError
    from serving.meta.protocol.http import run_http
    from serving.meta.protocol.stdio import run_stdio
    from serving.router import ServedRouter

    settings = load_settings()
    given = {"host": host, "port": port, "tokens": tokens, "consent": consent, "calls": calls}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings.serve = settings.serve.model_copy(update=chosen)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    try:
        policy = _make_policy(settings)
        listening = _make_http(settings) if http else None
    except TokenError as error:
        fail(str(error), 2)
    where = place or settings.home_path()
    logging.info("home: %s", where)
    router, outcomes = ServedRouter(where), Outcomes(where)
    router.current()  # a place without an index is told now, not to the first client
    caller = _make_caller(settings, router)
    if listening is None:
        run_stdio(router, caller, policy, outcomes)
    else:
        run_http(router, caller, policy, outcomes, listening)


@app.command("serve-token")
def serve_token(
    name: Annotated[str, typer.Argument(help="whose token it will be")],
) -> None:
    """Make a token: its secret for the client, and the entry for the tokens file."""
    from serving.meta.access.tokens import new_token

    secret, digest = new_token()
    print_json({"secret": secret, "entry": {"name": name, "sha256": digest}})


def _make_policy(settings: Settings) -> "MetaPolicy":
    from serving.meta.access.policy import MetaPolicy

    chosen = settings.serve
    return MetaPolicy(
        consent=chosen.consent,
        trust_read_only=chosen.trust_read_only,
        timeout_s=chosen.call_timeout_s,
    )


def _make_http(settings: Settings) -> "HttpSettings":
    from serving.meta.access.policy import HttpSettings
    from serving.meta.access.tokens import read_tokens, token_of

    chosen = settings.serve
    known = read_tokens(chosen.tokens) if chosen.tokens else ()
    if chosen.token:
        known = (*known, token_of(chosen.token.get_secret_value()))
    return HttpSettings(
        host=chosen.host,
        port=chosen.port,
        tokens=known,
        hosts=chosen.hosts,
        origins=chosen.origins,
    )


def _make_caller(settings: Settings, router: "ServedRouter") -> "Caller | None":
    """Who runs tools, by the recipes of whatever index is served at that moment."""
    if not settings.serve.calls:
        return None
    from assets.servers.calls.caller import Caller, CallLimits
    from orchestration.settings.deploy_policy import make_deploy_policy

    limits = CallLimits(sessions=settings.serve.warm_servers, idle_s=settings.serve.warm_s)
    return Caller(
        lambda server_id: router.current().index.recipe(server_id),
        make_deploy_policy(settings),
        limits,
    )
