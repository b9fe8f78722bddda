"""Granted hosts: how they are written, found in an error, and dialled."""

import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import anyio
from anyio.abc import SocketStream

from assets.servers.sandbox.gateway import Host, is_host_name, normalise_host
from warehouse.network.egress import EgressConnector, Resolve, is_address, is_loopback

HTTPS = 443
# How runtimes and libraries name the host that they did not reach.
_NAMED = re.compile(
    r"(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|getaddrinfo|lookup|resolve(?: host(?:name)?)?:?|host=)"
    r"[ '\"]{0,2}((?:[a-z0-9_-]{1,63}\.){1,8}[a-z][a-z0-9-]{1,62})(?::([0-9]{1,5}))?"
    r"|(?:connect to(?: host)?|https://) ?"
    r"((?:[a-z0-9_-]{1,63}\.){1,8}[a-z][a-z0-9-]{1,62})(?::([0-9]{1,5}))?",
    re.IGNORECASE,
)
_EXPECTED = "expected NAME or NAME:PORT, as api.example.com or api.example.com:8443"


def parse_host(text: str) -> Host:
    """(host, port) of `NAME[:PORT]` or `ADDRESS[:PORT]`, an IPv6 address in brackets where a port
    follows; 443 unless said. Raises ValueError for anything more, or else."""
    detail = f"host {text[:200]!r}"
    for sign, what in (("://", "an address with its scheme"), ("*", "a wildcard")):
        if sign in text:
            raise ValueError(f"{detail}: {what}; {_EXPECTED}")
    for sign, what in (("/", "a path"), ("?", "a query"), ("#", "a fragment"), ("@", "a user")):
        if sign in text:
            raise ValueError(f"{detail}: {what} in it, and hosts are granted whole; {_EXPECTED}")
    name, port = _split_port(text, detail)
    host = normalise_host(name)
    if not is_address(host) and not is_host_name(host):
        raise ValueError(f"{detail}: no name of a host, nor an address; {_EXPECTED}")
    return host, port


def format_host(host: Host) -> str:
    """`NAME`, or `NAME:PORT` where that is not 443."""
    name, port = host
    bracketed = f"[{name}]" if ":" in name and port != HTTPS else name
    return bracketed if port == HTTPS else f"{bracketed}:{port}"


def find_wanted_host(message: str) -> str | None:
    """The host, as `parse_host` reads it, that a server's own words say it did not reach."""
    match = _NAMED.search(message[:20_000])
    if match is None:
        return None
    text = (match[1] or match[3]).lower() + (f":{port}" if (port := match[2] or match[4]) else "")
    try:
        return format_host(parse_host(text))
    except ValueError:
        return None


def make_granted_dial(
    hosts: Iterable[Host], resolve: Resolve | None = None
) -> Callable[[str, int], Coroutine[Any, Any, SocketStream]]:
    """Connects to public addresses of a name, and to what the user named as an address himself
    (`localhost` too): a name that leads to a private address is refused (PrivateAddress)."""
    addresses = {host for host, _ in hosts if is_address(host) or is_loopback(host)}
    return make_dialler(EgressConnector(trusted=addresses, resolve=resolve))


def make_dialler(
    connector: EgressConnector,
) -> Callable[[str, int], Coroutine[Any, Any, SocketStream]]:
    """Connects to the judged addresses of a host, without a second look-up."""

    async def dial(host: str, port: int) -> SocketStream:
        last: OSError | None = None
        for address in await connector.find_addresses(host, port):
            try:
                return await anyio.connect_tcp(address, port)
            except OSError as error:
                last = error
        raise last or OSError(f"{host}: no address")

    return dial


def _split_port(text: str, detail: str) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed:
        name, port = bracketed[1], bracketed[2]
    elif text.count(":") > 1:
        name, port = text, None  # an IPv6 address without a port
    else:
        name, colon, port = text.partition(":")
        port = port if colon else None
    if port is None:
        return name, HTTPS
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise ValueError(f"{detail}: port {port[:20]!r}, expected 1 to 65535")
    return name, int(port)
