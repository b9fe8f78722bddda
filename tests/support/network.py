"""A network that is not there: what the egress guard would have dialled."""

import asyncio
from typing import Any

import httpcore2

from warehouse.network.egress import EgressConnector, look_up

PRIVATE = [
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "127.0.0.1"),
    *("169.254.169.254", "fe80::1", "fd00::1", "fec0::1", "::1", "::"),
    *("224.0.0.1", "ff02::1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
    *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:127.0.0.1"),
    # Addresses that carry an IPv4 one: NAT64, 6to4, IPv4-compatible, IPv4-translated, Teredo.
    *("64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::1", "2002:7f00:1::1", "::a00:1"),
    *("::7f00:1", "::ffff:0:7f00:1", "2001:0:a00:1::1"),
]
PUBLIC = "93.184.216.34"


class NoNetwork(httpcore2.AsyncNetworkBackend):
    """The connector's far side: notes where a connection would have gone and opens none."""

    def __init__(self) -> None:
        self.dialled: list[str] = []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> Any:
        self.dialled.append(host)
        raise httpcore2.ConnectError("no network in this test")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class OnlyLoopback(NoNetwork):
    """Lets loopback through, where a test's own server is, and notes what else was asked."""

    async def connect_tcp(self, host: str, port: int, *more: Any, **named: Any) -> Any:
        if host == "127.0.0.1":
            return await httpcore2.AnyIOBackend().connect_tcp(host, port)
        return await super().connect_tcp(host, port, *more, **named)


class NoSyncNetwork(httpcore2.NetworkBackend):
    """NoNetwork for clients that block."""

    def __init__(self) -> None:
        self.dialled: list[str] = []

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> Any:
        self.dialled.append(host)
        raise httpcore2.ConnectError("no network in this test")


def connector(inner: NoNetwork, *answers: list[str], **more: Any) -> EgressConnector:
    """A connector whose look-ups find these addresses, the last of them again and again."""
    found = list(answers)

    async def answers(host: str, port: int) -> list[str]:
        return found.pop(0) if len(found) > 1 else found[0]

    return EgressConnector(resolve=answers, inner=inner, **more)


def guard_loopback(address: str) -> tuple[EgressConnector, OnlyLoopback]:
    """A connector to this host, for which every name under `.example` has this address."""

    async def answers(host: str, port: int) -> list[str]:
        return [address] if host.endswith(".example") else await look_up(host, port)

    inner = OnlyLoopback()
    return EgressConnector(resolve=answers, inner=inner, allow_loopback=True), inner
