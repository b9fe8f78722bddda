"""The command `proxy`: an OpenAI-compatible API whose tool calls are repaired on the way."""

import logging
import os
import sys

import typer

from extensions.proxy.cli import options
from extensions.proxy.cli.parts import (
    CHAMPION,
    LOCAL,
    make_chooser,
    make_search,
    open_examples,
    open_local,
    open_reviser,
    open_served,
)
from orchestration.cli.terminal import fail, log_to_terminal

app = typer.Typer(add_completion=False)
_LOOP = {"use_uvloop": sys.platform != "win32"}


@app.command()
def proxy(
    model: options.Model = CHAMPION,
    upstream: options.Upstream = "",
    local: options.Local = False,
    first_call: options.First = False,
    waiting: options.Waiting = 32,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8929,
    token: options.Token = "",
    key_env: options.KeyEnv = "",
    timeout: options.Timeout = 120.0,
    total: options.Total = 900.0,
    max_body: options.MaxBody = 32_000_000,
    max_tools: options.MaxTools = 10_000,
    concurrency: options.Concurrency = 128,
    history: options.History = None,
    index: options.IndexPlace = None,
    candidates: options.Candidates = 10,
    tool_search: options.Search = False,
    search_rounds: options.SearchRounds = 4,
    examples: options.Examples = 0,
    examples_from: options.ExamplesFrom = None,
    revise: options.Revise = "",
    revise_url: options.ReviseUrl = "",
    revise_key_env: options.ReviseKeyEnv = "",
    revise_timeout: options.ReviseTimeout = 20.0,
) -> None:
    """An OpenAI-compatible proxy: tool calls that do not fit their tool are repaired on the way."""
    import anyio

    from extensions.proxy.app import run_proxy
    from extensions.proxy.parts import ProxyParts
    from extensions.proxy.settings import ProxySettings, make_listening
    from serving.repair.ladder import read_history_place

    _check_choice(model, upstream, local, first_call, tool_search, revise, revise_url)
    key, limits = _read_key("--key-env", key_env), (timeout, total, max_tools, concurrency)
    known = read_history_place(place) if (place := history or index) else None
    settings = ProxySettings(upstream, key, *limits, history=known)
    served = open_served(index) if index else None
    chooser = make_chooser(served, candidates) if served else None
    book = open_examples(examples, examples_from, chooser)
    own = open_local(model, waiting, book) if local or first_call else None
    key = _read_key("--revise-key-env", revise_key_env) or ("" if revise_url else key)
    reviser = open_reviser(revise, revise_url, upstream, key, revise_timeout) if revise else None
    search = make_search(served, candidates, search_rounds) if tool_search else None
    parts = ProxyParts(chooser, own, reviser, book if upstream else None, search)
    _start_log()
    listening = make_listening(host, port, token, max_body)
    anyio.run(run_proxy, settings, listening, parts, backend_options=_LOOP)


def _start_log() -> None:
    log_to_terminal()
    # It logs the address of each request, query included.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def _check_choice(
    model: str,
    upstream: str,
    local: bool,
    first_call: bool,
    tool_search: bool,
    revise: str,
    revise_url: str,
) -> None:
    """Ends the command where options contradict each other."""
    if not (upstream or local):
        fail("give --upstream ADDRESS, or --local to answer with a model that runs here", 2)
    if upstream and local:
        fail("--local answers without an upstream; beside one give --first-call", 2)
    if first_call and not upstream:
        fail("--first-call: needs --upstream, which goes on after the first call", 2)
    if tool_search and not upstream:
        fail("--tool-search: needs --upstream, whose model makes the searches", 2)
    if model != CHAMPION and not (local or first_call):
        fail(f"MODEL {model[:60]!r}: give --local or --first-call with it", 2)
    if revise and not (upstream or revise_url or revise.startswith(LOCAL)):
        fail("--revise: give --revise-url, the endpoint that has this model", 2)


def _read_key(option: str, name: str) -> str:
    key = os.environ.get(name, "") if name else ""
    if name and not key:
        fail(f"{option} {name[:60]!r}: no such variable is set, or it is empty", 2)
    return key
