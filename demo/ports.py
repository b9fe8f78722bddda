"""Where the replicas listen on loopback."""

import socket
from collections.abc import Mapping

HOST = "127.0.0.1"
BASE_PORT = 8931  # of the first site; each other has the next
_SITES = (
    *("registry", "mcpso", "files", "smithery", "glama"),
    *("pulsemcp", "mcphub", "deepnlp", "pipedream", "docker"),
)


def list_ports(base_port: int = BASE_PORT) -> dict[str, int]:
    """Site -> port; 0 lets the system choose each."""
    return {site: base_port and base_port + at for at, site in enumerate(_SITES)}


class PortTaken(RuntimeError):
    """A port is in use; the message names it and the fix."""


def bind(port: int) -> socket.socket:
    """A socket on loopback; 0 lets the system choose the port. Raises PortTaken."""
    # asyncio switches Nagle's delay off only where the protocol is named.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except OSError as error:
        sock.close()
        raise PortTaken(
            f"port {port} on {HOST} is taken ({error.strerror}); end the other program, or set"
            " TOOLMILL_DEMO__BASE_PORT"
        ) from error
    return sock


def reserve(ports: Mapping[str, int]) -> dict[str, socket.socket]:
    """Sockets that keep a port for each site while nobody listens there: another program is not
    given it, and our own listener may bind it too (SO_REUSEADDR). Raises PortTaken."""
    result: dict[str, socket.socket] = {}
    try:
        for site, port in ports.items():
            result[site] = bind(port)
    except PortTaken:
        release(result)
        raise
    return result


def release(sockets: Mapping[str, socket.socket]) -> None:
    for sock in sockets.values():
        sock.close()


def find_running(ports: Mapping[str, int]) -> dict[str, int]:
    """Which of these sites a replica of ours serves already: site -> port."""
    return {site: port for site, port in ports.items() if _is_served(site, port)}


def _is_served(site: str, port: int) -> bool:
    import httpx2

    from warehouse.network.http import open_client

    try:
        with open_client(allow_loopback=True, timeout=2.0) as client:
            answer = client.get(f"http://{HOST}:{port}/_stats")
        return answer.status_code == 200 and answer.json().get("site") == site
    except (httpx2.HTTPError, ValueError):
        return False
