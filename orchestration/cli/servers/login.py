"""The commands `login` and `logout`: a person's account at a remote server."""

import webbrowser
from typing import Annotated
from urllib.parse import urlsplit

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)

Url = Annotated[str, typer.Argument(help="of the remote MCP server")]


@app.command()
def login(
    url: Url,
    client_id: Annotated[
        str | None, typer.Option(help="of a client you registered; default: register one")
    ] = None,
    client_secret_from: Annotated[
        str | None, typer.Option(help="where its secret is: env:NAME or file:PATH")
    ] = None,
    issuer: Annotated[
        str | None, typer.Option(help="the only authorization server that client may be shown to")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="what to ask for; default: what the server names")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of the callback on loopback; 0: any")
    ] = 0,
    timeout: Annotated[float, typer.Option(min=1, help="seconds to wait for you")] = 300.0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="only print the address")
    ] = False,
) -> None:
    """Log in to a remote server that asks for OAuth; nightly probes renew it by themselves."""
    from assets.servers.oauth_login import log_in
    from assets.servers.secrets import OAuthChoice

    def show(address: str) -> None:
        print_line("open in a browser to log in:", err=True)
        print_line(address, err=True)
        if not no_browser:
            webbrowser.open(address)

    server_id = _parse_server_id(url)
    choice = OAuthChoice(
        client_id=client_id, client_secret=client_secret_from, scope=scope, issuer=issuer
    )
    if client_secret_from and not client_id:
        fail("--client-secret-from needs --client-id", 2)
    state = load_settings().state_path()
    try:
        report = log_in(
            url, server_id, state, show=show, choice=choice, port=port, timeout_s=timeout
        )
    except OSError as error:
        fail(f"port {port} or {state}: {error.strerror or error}", 1)
    print_json(report)
    if report["status"] != "ok":
        raise typer.Exit(1)


@app.command()
def logout(url: Url) -> None:
    """Forget the login of a remote server. The server is not told: revoke it there if need be."""
    from assets.servers.oauth_login import TokenStore

    server_id = _parse_server_id(url)
    forgotten = TokenStore(load_settings().state_path(), server_id).forget()
    print_json({"server_id": server_id, "forgotten": forgotten})


def _parse_server_id(url: str) -> str:
    from assets.servers.recipes.recipe import normalise_address

    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        fail(f"{url!r}: expected the http(s) address of a remote server", 2)
    return f"remote:{normalise_address(url)}"
