"""The command `proxy`: an OpenAI-compatible API whose tool calls are repaired on the way."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import EscapedLines, fail, print_line

if TYPE_CHECKING:
    from serving.examples.book import ExampleBook
    from serving.proxy.auto_tools import ToolChooser
    from serving.proxy.local.model import LocalModel
    from serving.proxy.revise.revising import Reviser

app = typer.Typer(add_completion=False)
CHAMPION, LOCAL = "champion", "local:"


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
        bool,
        typer.Option("--first-call", help="with --upstream: MODEL writes only the first call"),
    ] = False,
    waiting: Annotated[int, typer.Option(min=0, help="requests that wait for MODEL")] = 32,
    host: Annotated[str, typer.Option(help="beyond this machine only with a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8931,
    token: Annotated[
        str, typer.Option(envvar="PROXY_TOKEN", help="secret that clients send, 20 characters")
    ] = "",
    key_env: Annotated[
        str, typer.Option(help="variable with the upstream's key; default: the client's is sent on")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds without a byte")] = 120.0,
    total: Annotated[float, typer.Option(min=1, help="seconds of one request")] = 900.0,
    max_body: Annotated[int, typer.Option(min=1, help="bytes of one request")] = 32_000_000,
    max_tools: Annotated[int, typer.Option(min=1, help="tools of one request")] = 10_000,
    concurrency: Annotated[int, typer.Option(min=1, help="requests at once")] = 128,
    history: Annotated[
        Path | None,
        typer.Option(help="history.json, or a folder with a served index: names that changed"),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(help='a release, an index or a home: picks tools where `tools` is "auto"'),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, max=100, help="with --index: a turn")] = 10,
    examples: Annotated[
        int, typer.Option(min=0, max=20, help="accepted calls of like requests in a prompt")
    ] = 0,
    examples_from: Annotated[
        Path | None, typer.Option(help="with --examples: an export in the format messages")
    ] = None,
    revise: Annotated[
        str, typer.Option(help="rewrites calls that are left: a model of the upstream, local:NAME")
    ] = "",
    revise_url: Annotated[str, typer.Option(help="another endpoint for --revise")] = "",
    revise_key_env: Annotated[
        str, typer.Option(help="variable with its key; default: as for the upstream")
    ] = "",
    revise_timeout: Annotated[float, typer.Option(min=0.1, help="seconds of a call")] = 20.0,
) -> None:
    """An OpenAI-compatible proxy: tool calls that do not fit their tool are repaired on the way."""
    import anyio

    from serving.proxy.app import run_proxy
    from serving.proxy.local.upstream import LocalUpstream
    from serving.proxy.parts import ProxyParts
    from serving.proxy.settings import ProxySettings, make_listening
    from serving.repair.files import read_history_place

    _check_choice(model, upstream, local, first_call, revise, revise_url)
    key = _read_key("--key-env", key_env)
    settings = ProxySettings(
        upstream,
        key,
        timeout_s=timeout,
        total_s=total,
        max_tools=max_tools,
        max_open=concurrency,
        history=read_history_place(place) if (place := history or index) else None,
    )
    chooser = _open_chooser(index, candidates) if index else None
    book = _open_examples(examples, examples_from, chooser)
    own = LocalUpstream(_load_local(model), waiting, book) if local or first_call else None
    reviser = None
    if revise.startswith(LOCAL):
        reviser = _load_reviser(revise.removeprefix(LOCAL), revise_timeout)
    elif revise:
        at = ProxySettings(revise_url or upstream).find_base()
        revise_key = _read_key("--revise-key-env", revise_key_env) or ("" if revise_url else key)
        reviser = _make_reviser(at, revise, revise_key, revise_timeout)
    parts = ProxyParts(chooser, own, reviser, book if upstream else None)
    listening = make_listening(host, port, token, max_body)
    log = logging.StreamHandler()
    log.setFormatter(EscapedLines("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    # It logs the address of each request, query included.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    anyio.run(run_proxy, settings, listening, parts)


def _check_choice(
    model: str, upstream: str, local: bool, first_call: bool, revise: str, revise_url: str
) -> None:
    """Ends the command where options contradict each other."""
    if not (upstream or local):
        fail("give --upstream ADDRESS, or --local to answer with a model that runs here", 2)
    if upstream and local:
        fail("--local answers without an upstream; beside one give --first-call", 2)
    if first_call and not upstream:
        fail("--first-call: needs --upstream, which goes on after the first call", 2)
    if model != CHAMPION and not (local or first_call):
        fail(f"MODEL {model[:60]!r}: give --local or --first-call with it", 2)
    if revise and not (upstream or revise_url or revise.startswith(LOCAL)):
        fail("--revise: give --revise-url, the endpoint that has this model", 2)


def _read_key(option: str, name: str) -> str:
    key = os.environ.get(name, "") if name else ""
    if name and not key:
        fail(f"{option} {name[:60]!r}: no such variable is set, or it is empty", 2)
    return key


def _load_local(model: str) -> "LocalModel":
    """The champion caller or the one that is named, loaded now."""
    from orchestration.cli.models.predictors import load_caller
    from orchestration.settings.load import load_settings
    from training.local.caller import LocalCaller
    from training.releases.in_service import find_model_in_service

    settings = load_settings()
    if model == CHAMPION:
        found = find_model_in_service(settings.home_path(), "caller")
        model = found.model
        if found.notice:
            print_line(found.notice, err=True)
    return LocalCaller(load_caller(settings, model))


def _open_examples(
    n: int, folder: Path | None, chooser: "ToolChooser | None"
) -> "ExampleBook | None":
    """Compared by the encoder of the index where there is one, else by words."""
    from serving.examples.book import ExampleBook, read_examples

    if not n and folder is None:
        return None
    if not n or folder is None:
        fail("--examples N and --examples-from EXPORT go together", 2)
    return ExampleBook(read_examples(folder), n, chooser.embed_texts if chooser else None)


def _make_reviser(base: str, model: str, key: str, timeout_s: float) -> "Reviser":
    from serving.proxy.revise.endpoint import EndpointReviser
    from serving.proxy.revise.revising import Reviser

    return Reviser(model, EndpointReviser(base, model, key, timeout_s), timeout_s)


def _load_reviser(name: str, timeout_s: float) -> "Reviser":
    """A sidecar that runs here, loaded now: `champion`, its name or its folder."""
    from orchestration.cli.models.predictors import open_reviser
    from orchestration.settings.load import load_settings
    from serving.proxy.revise.revising import Reviser, guard_model

    return Reviser(name, guard_model(open_reviser(load_settings(), name)), timeout_s)


def _open_chooser(place: Path, candidates: int) -> "ToolChooser":
    """Picks from what a place serves; one without an index is told now, not to the first client."""
    from orchestration.settings.load import allow_models, load_settings
    from serving.export import open_checked
    from serving.proxy.auto_tools import ToolChooser
    from serving.ranking.hot_reload import ServedRouter

    allow_models(load_settings())
    served = ServedRouter(place, open_checked())
    served.current()
    return ToolChooser(served, candidates)
