"""The relay between the MCP client and a sandboxed server's standard streams."""

import json
import os
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from assets.servers.probe.transcript import (
    MAX_NOISE,
    MAX_UNASKED,
    AmbiguousJson,
    MessageFilter,
    ServerTranscript,
    parse_message,
)
from assets.servers.sandbox.process import SandboxProcess
from assets.servers.sandbox.spec import SandboxPolicy

_CHUNK = 1 << 16
_MIB = 1024 * 1024
_STDERR_KEPT = 16_384


class StdioRelay:
    """Runs as three tasks beside a session; `read` and `write` are the session's streams."""

    def __init__(
        self, jailed: SandboxProcess, policy: SandboxPolicy, listener: MessageFilter | None = None
    ) -> None:
        self.listener = listener or MessageFilter()
        self._jailed = jailed
        self._policy = policy
        self._blank = 0
        self.total = 0  # bytes read from its standard output so far
        self.over = anyio.Event()  # its standard output is not read any more
        self.unsent = False  # a message of ours found its standard input closed
        self._to_session: MemoryObjectSendStream[Any]
        self._from_session: MemoryObjectReceiveStream[Any]
        self._to_session, self.read = anyio.create_memory_object_stream[Any](64)
        self.write, self._from_session = anyio.create_memory_object_stream[Any](64)
        for stream in (jailed.process.stdin, jailed.process.stdout, jailed.process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)

    @property
    def transcript(self) -> ServerTranscript:
        return self.listener.transcript

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        tasks.start_soon(self._read_stdout)
        tasks.start_soon(self._read_stderr)
        tasks.start_soon(self._write_stdin)

    async def _read_stdout(self) -> None:
        try:
            await self._take_stdout()
        finally:
            self.over.set()

    async def _take_stdout(self) -> None:
        buffer = bytearray()
        async with self._to_session:
            while chunk := await _read(self._jailed.process.stdout):
                self.total += len(chunk)
                if self.total > self._policy.stdout_mb * _MIB:
                    self.transcript.oversize = f"more than {self._policy.stdout_mb} MB on stdout"
                    return
                buffer += chunk
                if b"\n" in chunk:
                    *lines, remainder = bytes(buffer).split(b"\n")
                    buffer = bytearray(remainder)
                    self._blank += lines.count(b"")
                    for line in filter(None, lines):
                        await self._take_line(line)
                self._note_excess(len(buffer))
                if self.transcript.oversize or self.transcript.broken:
                    return
                await anyio.lowlevel.checkpoint()  # a flood must not starve the clocks
            self.transcript.ended = True

    def _note_excess(self, waiting: int) -> None:
        if waiting > self._policy.message_mb * _MIB:
            self.transcript.oversize = f"a message of more than {self._policy.message_mb} MB"
        elif max(self.transcript.noise, self._blank) > MAX_NOISE:
            self.transcript.oversize = f"more than {MAX_NOISE} lines that are no messages"
        elif self.transcript.initiated + self.transcript.strays > MAX_UNASKED:
            self.transcript.oversize = f"more than {MAX_UNASKED} messages that nobody asked for"

    async def _take_line(self, line: bytes) -> None:
        if not line.strip() or self.transcript.noise > MAX_NOISE or self.transcript.broken:
            return
        if len(line) > self._policy.message_mb * _MIB:
            self.transcript.oversize = f"a message of more than {self._policy.message_mb} MB"
            return
        try:
            message = parse_message(line.decode("utf-8"))
        except AmbiguousJson as error:
            self.transcript.broken = str(error)
            return
        except (ValueError, RecursionError):
            message = None
        messages = message if isinstance(message, list) else [message]
        for item in messages[:100]:
            if isinstance(item, dict) and item.get("jsonrpc") == "2.0":
                await self._deliver_message(item)
            else:
                self.listener.count_noise(repr(line[:120]))

    async def _deliver_message(self, raw: dict[str, Any]) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        message = self.listener.take(raw)
        if message is None:
            return
        try:
            parsed = jsonrpc_message_adapter.validate_python(message)
            await self._to_session.send(SessionMessage(parsed))
        except ValueError:
            self.listener.count_noise(repr(message)[:120])
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def _read_stderr(self) -> None:
        while chunk := await _read(self._jailed.process.stderr):
            self.transcript.stderr = (self.transcript.stderr + chunk)[-_STDERR_KEPT:]

    async def _write_stdin(self) -> None:
        async with self._from_session:
            async for item in self._from_session:
                message = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                self.listener.note_request(message)
                data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
                if not await _write(self._jailed.process.stdin, data):
                    self.unsent = True
                    return


async def _read(stream: Any) -> bytes:
    """The next bytes of a non-blocking pipe; b"" at its end."""
    while True:
        try:
            return os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            await anyio.wait_readable(stream)
        except (OSError, ValueError):
            return b""


async def _write(stream: Any, data: bytes) -> bool:
    """Whether all of `data` was written; a server that does not read only holds up this task."""
    while data:
        try:
            data = data[os.write(stream.fileno(), data) :]
        except BlockingIOError:
            await anyio.wait_writable(stream)
        except (OSError, ValueError):
            return False
    return True
