"""The relay between the MCP client and a sandboxed server's standard streams.

Belongs here: bounded reading (bytes in all, bytes a message, messages the server starts itself),
keeping the raw JSON of `tools/list`, and handing the SDK's session only what it can digest. The
SDK alone would lose a whole list to one bad schema and has no bound on a line.
Does not belong here: what to ask the server and what the answers mean (`probe.py`).
"""

import json
import os
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from assets.servers.launch import SandboxPolicy
from assets.servers.sandbox import Jailed

_CHUNK = 1 << 16
_MIB = 1024 * 1024
_MAX_INITIATED = 200  # requests and notifications of the server that are listened to
_MAX_NOISE = 5000  # lines on standard output that are no messages
_STDERR_KEPT = 16_384


@dataclass
class Heard:
    """What came over the wire, besides the answers that the session was given."""

    tools: list[Any] = field(default_factory=list)  # raw entries of every page, in order
    server: dict[str, Any] = field(default_factory=dict)  # raw result of `initialize`
    malformed_page: str | None = None
    oversize: str | None = None
    noise: int = 0  # lines that are no JSON-RPC message
    first_noise: str = ""
    strays: int = 0  # answers to nothing that was asked
    initiated: int = 0
    ended: bool = False  # standard output was closed
    stderr: bytes = b""


class Relay:
    """Runs as three tasks beside a session; `read` and `write` are the session's streams."""

    def __init__(self, jailed: Jailed, policy: SandboxPolicy) -> None:
        self.heard = Heard()
        self._jailed = jailed
        self._policy = policy
        self._asked: dict[Any, str] = {}
        self._to_session: MemoryObjectSendStream[Any]
        self._from_session: MemoryObjectReceiveStream[Any]
        self._to_session, self.read = anyio.create_memory_object_stream[Any](64)
        self.write, self._from_session = anyio.create_memory_object_stream[Any](64)
        for stream in (jailed.process.stdin, jailed.process.stdout, jailed.process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        tasks.start_soon(self._read_stdout)
        tasks.start_soon(self._read_stderr)
        tasks.start_soon(self._write_stdin)

    async def _read_stdout(self) -> None:
        buffer, total = bytearray(), 0
        async with self._to_session:
            while chunk := await _read(self._jailed.process.stdout):
                total += len(chunk)
                if total > self._policy.stdout_mb * _MIB:
                    self.heard.oversize = f"more than {self._policy.stdout_mb} MB on stdout"
                    return
                buffer += chunk
                if b"\n" in chunk:
                    *lines, rest = bytes(buffer).split(b"\n")
                    buffer = bytearray(rest)
                    for line in lines:
                        await self._take_line(line)
                self._note_excess(len(buffer))
                if self.heard.oversize:
                    return
                await anyio.lowlevel.checkpoint()  # a flood must not starve the clocks
            self.heard.ended = True

    def _note_excess(self, waiting: int) -> None:
        if waiting > self._policy.message_mb * _MIB:
            self.heard.oversize = f"a message of more than {self._policy.message_mb} MB"
        elif self.heard.noise > _MAX_NOISE:
            self.heard.oversize = f"more than {_MAX_NOISE} lines that are no messages"

    async def _take_line(self, line: bytes) -> None:
        if not line.strip() or self.heard.noise > _MAX_NOISE:
            return
        if len(line) > self._policy.message_mb * _MIB:
            self.heard.oversize = f"a message of more than {self._policy.message_mb} MB"
            return
        try:
            message = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            message = None
        messages = message if isinstance(message, list) else [message]
        for one in messages[:100]:
            if isinstance(one, dict) and one.get("jsonrpc") == "2.0":
                await self._take_message(one)
            else:
                self.heard.noise += 1
                self.heard.first_noise = self.heard.first_noise or repr(line[:120])

    async def _take_message(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.heard.initiated += 1
            # Requests are passed on, to be declined by the session; notifications say nothing that
            # a probe needs, and a storm of them must not reach it.
            if "id" in message and self.heard.initiated <= _MAX_INITIATED:
                await self._deliver(message)
            return
        asked = self._asked.pop(_hashable(message.get("id")), None)
        if asked is None:
            self.heard.strays += 1
            return
        result = message.get("result")
        if asked == "initialize" and isinstance(result, dict):
            self.heard.server = result
        if asked == "tools/list" and isinstance(result, dict):
            message = {**message, "result": self._keep_page(result)}
        await self._deliver(message)

    def _keep_page(self, result: dict[str, Any]) -> dict[str, Any]:
        """Keeps the raw tools; the session gets an empty page with the same cursor."""
        tools, cursor = result.get("tools"), result.get("nextCursor")
        if isinstance(tools, list):
            self.heard.tools.extend(tools)
        else:
            self.heard.malformed_page = f"`tools` is {type(tools).__name__}, expected a list"
        return {"tools": [], **({"nextCursor": cursor} if isinstance(cursor, str) else {})}

    async def _deliver(self, message: dict[str, Any]) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        try:
            parsed = jsonrpc_message_adapter.validate_python(message)
            await self._to_session.send(SessionMessage(parsed))
        except ValueError:
            self.heard.noise += 1
            self.heard.first_noise = self.heard.first_noise or repr(message)[:120]
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def _read_stderr(self) -> None:
        while chunk := await _read(self._jailed.process.stderr):
            self.heard.stderr = (self.heard.stderr + chunk)[-_STDERR_KEPT:]

    async def _write_stdin(self) -> None:
        async with self._from_session:
            async for item in self._from_session:
                message = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                if "method" in message and "id" in message:
                    self._asked[_hashable(message["id"])] = message["method"]
                data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
                if not await _write(self._jailed.process.stdin, data):
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


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else repr(value)
