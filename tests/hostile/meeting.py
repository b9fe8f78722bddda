"""Probing a scripted remote server under tight limits of size."""

import mcp.client.session  # noqa: F401  before any clock runs: seconds on a busy machine

from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from tests.support.http_mcp import Call, serve_script

# What ends by its content must not meet a clock on a busy machine: a test of a clock sets its own.
LIMITS = ProbePolicy(start_s=20.0, list_s=20.0, extras_s=0.5)
POLICY = RemotePolicy(allow_loopback=True, max_mb=4, message_mb=2, wall_s=40.0)
CHUNK = b"x" * 65536


def probe_script(script, transport="http", limits=LIMITS, policy=POLICY, **more):
    with serve_script(script) as here:
        found = probe_remote(here.url, transport=transport, limits=limits, policy=policy, **more)
    return found, here


def write_endlessly(call: Call, data: bytes = CHUNK) -> None:
    call.for_ever(lambda: call.write(data), pause_s=0)


def make_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def keep_silent(call: Call) -> None:
    call.for_ever()
