"""The inside of the gateway: starts a tool in the sandbox and carries its connections from a port
of the sandbox's own loopback to the gateway's socket. Runs as a program; standard library only."""

import asyncio
import os
import sys
from contextlib import suppress

PORT = 1080
SOCKET = "/srv/gateway/socket"


async def run_with_relay(argv: list[str]) -> int:
    """The tool's exit code, 128 + number where a signal ended it."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_unix_connection(SOCKET)
            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
        writer.close()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(65_536):
                sink.write(chunk)
                await sink.drain()
            sink.write_eof()
            return
        sink.close()

    server = await asyncio.start_server(carry, "127.0.0.1", PORT)
    # What is inherited is meant for the tool: a browser is spoken to through two more pipes.
    process = await asyncio.create_subprocess_exec(*argv, close_fds=False)
    code = await process.wait()
    server.close()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Left as it stands: an orderly end prints a trace for each connection that is still open.
    os._exit(asyncio.new_event_loop().run_until_complete(run_with_relay(sys.argv[1:])))
