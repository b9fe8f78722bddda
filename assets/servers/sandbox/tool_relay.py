"""The inside of the gateway: starts a tool in the sandbox and carries its connections from a port
of the sandbox's own loopback to the gateway's socket. Runs as a program; standard library only.

TOOLMILL_HOSTS, `{"host:port": port}`, asks for further ports, each of which leads to one host: for
programs that know no proxy."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from functools import partial

PORT = 1080
SOCKET = "/srv/gateway/socket"


async def run_with_relay(argv: list[str]) -> int:
    """The tool's exit code, 128 + number where a signal ended it."""

    async def carry(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: bytes = b"", port: int = 0
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            far_reader, far_writer = await asyncio.open_unix_connection(SOCKET)
            if host and not await ask(far_reader, far_writer, host, port):
                far_writer.close()
                writer.close()
                return
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        writer.close()

    async def ask(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: bytes, port: int
    ) -> bool:
        """Whether the gateway, asked in SOCKS 5, connects to the host."""
        connect = b"\5\1\0\3" + bytes([len(host)]) + host + port.to_bytes(2, "big")
        writer.write(b"\5\1\0" + connect)
        return (await reader.readexactly(12))[3] == 0

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(65_536):
                sink.write(chunk)
                await sink.drain()
            sink.write_eof()
            return
        sink.close()

    servers = [await asyncio.start_server(carry, "127.0.0.1", PORT)]
    for target, listened in json.loads(os.environ.get("TOOLMILL_HOSTS", "{}")).items():
        host, _, port = target.rpartition(":")
        lead = partial(carry, host=host.encode(), port=int(port))
        servers.append(await asyncio.start_server(lead, "127.0.0.1", listened))
    # What is inherited is meant for the tool: a browser is spoken to through two more pipes.
    process = await asyncio.create_subprocess_exec(*argv, close_fds=False)
    code = await process.wait()
    for server in servers:
        server.close()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Left as it stands: an orderly end prints a trace for each connection that is still open.
    os._exit(asyncio.new_event_loop().run_until_complete(run_with_relay(sys.argv[1:])))
