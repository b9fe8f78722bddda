"""The command `proxy`: an OpenAI-compatible API whose tool calls are repaired on the way."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import EscapedLines, fail

if TYPE_CHECKING:
    from serving.proxy.auto_tools import ToolChooser

app = typer.Typer(add_completion=False)


@app.command()
def proxy(
    upstream: Annotated[str, typer.Option(help="base address, like https://api.openai.com/v1")],
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
) -> None:
    """An OpenAI-compatible proxy: tool calls that do not fit their tool are repaired on the way."""
    import anyio

    from serving.proxy.app import run_proxy
    from serving.proxy.settings import ProxySettings, make_listening
    from serving.repair.files import read_history_place

    key = os.environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        fail(f"--key-env {key_env[:60]!r}: no such variable is set, or it is empty", 2)
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
    listening = make_listening(host, port, token, max_body)
    log = logging.StreamHandler()
    log.setFormatter(EscapedLines("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    # It logs the address of each request, query included.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    anyio.run(run_proxy, settings, listening, chooser)


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
