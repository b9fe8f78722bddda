"""The command `proxy`: an OpenAI-compatible API whose tool calls are repaired on the way."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, log_to_terminal, print_line

if TYPE_CHECKING:
    from extensions.proxy.auto_tools import ToolChooser
    from extensions.proxy.examples_book import ExampleBook
    from extensions.proxy.local_upstream import LocalUpstream
    from extensions.proxy.revising import CallReviser
    from extensions.proxy.tool_search import ToolSearch
    from serving.router import ServedRouter

Model = Annotated[
    str, typer.Argument(help="with --local: a caller's name or folder, constrained:NAME")
]
Upstream = Annotated[str, typer.Option(help="base address, like https://api.openai.com/v1")]
Local = Annotated[bool, typer.Option("--local", help="answer with a model that runs here: MODEL")]
First = Annotated[
    bool, typer.Option("--first-call", help="with --upstream: MODEL writes only the first call")
]
Host = Annotated[str, typer.Option(help="beyond this machine only with a token")]
Port = Annotated[int, typer.Option(min=0, max=65_535)]
Token = Annotated[
    str, typer.Option(envvar="PROXY_TOKEN", help="secret that clients send, 20 characters")
]
KeyEnv = Annotated[
    str, typer.Option(help="variable with the upstream's key; default: the client's is sent on")
]
Timeout = Annotated[float, typer.Option(min=0.1, help="seconds without a byte")]
Total = Annotated[float, typer.Option(min=1, help="seconds of one request")]
MaxBody = Annotated[int, typer.Option(min=1, help="bytes of one request")]
History = Annotated[
    Path | None,
    typer.Option(help="history.json, or a folder with a served index: names that changed"),
]
IndexPlace = Annotated[
    Path | None,
    typer.Option(help='a release, an index or a home: picks tools where `tools` is "auto"'),
]
Candidates = Annotated[int, typer.Option(min=1, max=100, help="with --index: tools picked a turn")]
Search = Annotated[
    bool, typer.Option("--tool-search", help="answer the searches for tools that models make")
]
Examples = Annotated[
    int, typer.Option(min=0, max=20, help="accepted calls of like requests in a prompt")
]
ExamplesFrom = Annotated[
    Path | None, typer.Option(help="with --examples: an export in the format messages")
]
Revise = Annotated[
    str, typer.Option(help="rewrites calls that are left: a model of the upstream, local:NAME")
]
ReviseUrl = Annotated[str, typer.Option(help="another endpoint for --revise")]
ReviseKeyEnv = Annotated[
    str, typer.Option(help="variable with its key; default: the upstream's, at its origin alone")
]


CHAMPION, LOCAL = "champion", "local:"
app = typer.Typer(add_completion=False, rich_help_panel="Search and serve")
_LOOP = {"use_uvloop": sys.platform != "win32"}


def open_local(model: str, book: "ExampleBook | None") -> "LocalUpstream":
    """The champion caller or the one that is named, loaded now."""
    from extensions.proxy.local_caller import LocalCaller
    from extensions.proxy.local_upstream import LocalUpstream
    from orchestration.cli.evaluation import load_caller
    from orchestration.settings.load import load_settings
    from training.releases.in_service import find_model_in_service

    settings = load_settings()
    if model == CHAMPION:
        model_in_service = find_model_in_service(settings.home_path(), "caller")
        model = model_in_service.model
        if model_in_service.notice:
            print_line(model_in_service.notice, err=True)
    return LocalUpstream(LocalCaller(load_caller(settings, model)), examples=book)


def open_examples(
    n: int, folder: Path | None, chooser: "ToolChooser | None"
) -> "ExampleBook | None":
    """Compared by the encoder of the index where there is one, else by words."""
    from extensions.proxy.examples_book import ExampleBook, read_examples

    if not n and folder is None:
        return None
    if not n or folder is None:
        fail("--examples N and --examples-from EXPORT go together", 2)
    return ExampleBook(read_examples(folder), n, chooser.embed_texts if chooser else None)


def open_reviser(name: str, at: str, upstream: str, key: str) -> "CallReviser":
    """A model of the endpoint `at`, "" of the upstream, or with `local:` a sidecar that runs here,
    loaded now: `champion`, its name or its folder."""
    from extensions.proxy.revising import CallReviser, UpstreamReviser, guard_model
    from extensions.proxy.upstream import ProxySettings

    if not name.startswith(LOCAL):
        base = ProxySettings(at or upstream).find_base()
        revise = UpstreamReviser(base, name, key, upstream=upstream)
        return CallReviser(name, revise)
    from orchestration.cli.evaluation import open_reviser as load_reviser
    from orchestration.settings.load import load_settings

    name = name.removeprefix(LOCAL)
    return CallReviser(name, guard_model(load_reviser(load_settings(), name)))


def open_served(place: Path) -> "ServedRouter":
    """What a place serves; one without an index is told now, not to the first client."""
    from orchestration.settings.load import allow_models, load_settings
    from serving.export import open_checked
    from serving.router import ServedRouter

    allow_models(load_settings())
    served = ServedRouter(place, open_checked())
    served.current()
    return served


def make_chooser(served: "ServedRouter", candidates: int) -> "ToolChooser":
    """Picks the tools where a request leaves them to the router."""
    from extensions.proxy.auto_tools import ToolChooser

    return ToolChooser(served, candidates)


def make_search(served: "ServedRouter | None", candidates: int) -> "ToolSearch":
    """Answers the searches for tools that models make."""
    from extensions.proxy.tool_search import ToolSearch

    return ToolSearch(served, candidates)


@app.command()
def proxy(
    model: Model = CHAMPION,
    upstream: Upstream = "",
    local: Local = False,
    first_call: First = False,
    host: Host = "127.0.0.1",
    port: Port = 8929,
    token: Token = "",
    key_env: KeyEnv = "",
    timeout: Timeout = 120.0,
    total: Total = 900.0,
    max_body: MaxBody = 32_000_000,
    history: History = None,
    index: IndexPlace = None,
    candidates: Candidates = 10,
    tool_search: Search = False,
    examples: Examples = 0,
    examples_from: ExamplesFrom = None,
    revise: Revise = "",
    revise_url: ReviseUrl = "",
    revise_key_env: ReviseKeyEnv = "",
) -> None:
    """An OpenAI-compatible proxy: tool calls that do not fit their tool are repaired on the way."""
    import anyio

    from extensions.proxy.answer import ProxyParts
    from extensions.proxy.app import run_proxy
    from extensions.proxy.upstream import ProxySettings, make_listening
    from serving.repair.ladder import read_history_place

    _check_choice(model, upstream, local, first_call, tool_search, revise, revise_url)
    key = _read_key("--key-env", key_env)
    known = read_history_place(place) if (place := history or index) else None
    settings = ProxySettings(upstream, key, timeout, total, history=known)
    served = open_served(index) if index else None
    chooser = make_chooser(served, candidates) if served else None
    book = open_examples(examples, examples_from, chooser)
    own = open_local(model, book) if local or first_call else None
    key = _read_key("--revise-key-env", revise_key_env) or ("" if revise_url else key)
    reviser = open_reviser(revise, revise_url, upstream, key) if revise else None
    search = make_search(served, candidates) if tool_search else None
    proxy_parts = ProxyParts(chooser, own, reviser, book if upstream else None, search)
    _start_log()
    listening = make_listening(host, port, token, max_body)
    anyio.run(run_proxy, settings, listening, proxy_parts, backend_options=_LOOP)


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
