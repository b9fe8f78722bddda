"""The transcript of a connection: messages a session may see, and the verdict on its evidence."""

import json
import math
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from assets.servers.probe.failure_kinds import ProbeFailure, classify_last_words, classify_text
from assets.servers.sandbox.process import SandboxProcess
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.watchdog import LimitBreach
from warehouse.sanitize.untrusted_text import find_repeated_name

MAX_INITIATED = 200  # requests and notifications of the server that are listened to
MAX_NOISE = 5000  # lines or events that are no messages
MAX_UNASKED = 50_000  # messages that answer nothing: each costs us more than it costs the server
MAX_DEPTH = 128  # of a message: what keeps it, copies it and prints it recurses

DISCOVER = "server/discover"  # in place of `initialize` since 2026-07-28
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

_INTERNAL = -32_603  # JSON-RPC's code for what has no other
_NEEDED = ("initialize", "tools/list")  # without an answer that can be read there are no tools

# Method -> the member of its result that holds the list.
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


@dataclass
class ServerTranscript:
    """What came over the wire, besides the answers that the session was given.

    lists: raw entries of every page since the last `turn`, by the result's member. earlier: the
    tools of the listings before that one.
    """

    lists: dict[str, list[Any]] = field(default_factory=dict)
    earlier: list[list[Any]] = field(default_factory=list)
    # The raw result of `initialize`, or of `server/discover` where there is no handshake.
    server: dict[str, Any] = field(default_factory=dict)
    malformed_page: str | None = None
    broken: str | None = None  # a message that no two parsers read alike, or an answer without use
    oversize: str | None = None
    noise: int = 0
    greeted: int = 0  # the noise until `initialize` was answered
    first_noise: str = ""
    strays: int = 0  # answers to nothing that was asked
    initiated: int = 0
    ended: bool = False  # its output was closed
    stderr: bytes = b""
    errors: deque[tuple[Any, Any]] = field(default_factory=lambda: deque(maxlen=64))

    def note_error(self, error: Any) -> None:
        """Notes an error that the server sent."""
        if isinstance(error, dict):
            self.errors.append((error.get("code"), error.get("message")))

    def has_sent(self, error: Any) -> bool:
        """Whether an error of the SDK's is one that the server sent: the SDK makes up others for
        what goes wrong with a transport."""
        return (error.code, error.message) in self.errors

    @property
    def tools(self) -> list[Any]:
        return self.lists.get("tools", [])

    def begin_listing(self) -> None:
        """Begins another listing of the tools."""
        self.earlier.append(self.lists.pop("tools", []))

    def take_back(self) -> None:
        """Forgets the listing that was begun last."""
        self.lists["tools"] = self.earlier.pop()


class MessageFilter:
    """Filters one connection's messages: `note_request` what goes out, `take` what comes in.

    stale: the server has said that its tools have changed.
    """

    def __init__(self) -> None:
        self.transcript = ServerTranscript()
        self.stale = False
        self._asked: dict[Any, str] = {}

    def note_request(self, message: dict[str, Any]) -> None:
        """Notes a request of ours, so that its answer is known."""
        if "method" in message and "id" in message:
            self._asked[_make_hashable(message["id"])] = message["method"]

    def take(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The message as the session may see it, or None where it may not."""
        if message.get("method") == "notifications/tools/list_changed":
            self.stale = True
        if "method" in message:
            self.transcript.initiated += 1
            # Requests are passed on, to be declined by the session; notifications say nothing that
            # a probe needs, and a storm of them must not reach it.
            listened = "id" in message and self.transcript.initiated <= MAX_INITIATED
            return message if listened else None
        method = self._asked.pop(_make_hashable(message.get("id")), None)
        if method is None:
            self.transcript.note_error(message.get("error"))
            self.transcript.strays += 1
            return None
        result = message.get("result")
        if method in _NEEDED and not isinstance(message.get("result", {}), dict):
            kind = type(result).__name__
            self.transcript.broken = f"the result of `{method}` is {kind}, expected an object"
        if method == "initialize" and isinstance(result, dict):
            self.transcript.server = result
        elif method == DISCOVER and isinstance(result, dict):
            meta = result.get("_meta")
            info = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
            self.transcript.server = {**result, "serverInfo": info}
        if method in LISTS and isinstance(result, dict):
            return {**message, "result": self._keep_page(LISTS[method], result)}
        return self._read_answer(message)

    def _read_answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer as JSON-RPC has it: one of odd form would leave its call waiting."""
        framed = {name: message[name] for name in ("jsonrpc", "id") if name in message}
        error, result = message.get("error"), message.get("result")
        if isinstance(result, dict) and not error:  # some write `false` or `{}` beside it
            return {**framed, "result": result}
        if error is not None:
            error = _read_error(error)
            self.transcript.note_error(error)
            return {**framed, "error": error}
        detail = f"the result is {type(result).__name__}, expected an object"
        return {**framed, "error": {"code": _INTERNAL, "message": detail}}

    def count_noise(self, excerpt: str) -> None:
        """Counts something that is no message."""
        self.transcript.noise += 1
        self.transcript.first_noise = self.transcript.first_noise or excerpt[:160]

    def _keep_page(self, member: str, result: dict[str, Any]) -> dict[str, Any]:
        """Keeps the raw entries; the session gets an empty page with the same cursor."""
        entries, cursor = result.get(member), result.get("nextCursor")
        if isinstance(entries, list):
            self.transcript.lists.setdefault(member, []).extend(entries)
        elif member == "tools":
            kind = type(entries).__name__
            self.transcript.malformed_page = f"`tools` is {kind}, expected a list"
        # A page needs these since 2026-07-28; a session of an older version leaves them out.
        page = {member: [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {**page, **({"nextCursor": cursor} if isinstance(cursor, str) else {})}


def _read_error(error: Any) -> dict[str, Any]:
    """An error with a number and a text, whatever the server wrote: Node's codes are texts."""
    fields = error if isinstance(error, dict) else {"message": error}
    code, message = fields.get("code"), fields.get("message", "an error without a message")
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if not isinstance(code, int) or isinstance(code, bool):
        code = _INTERNAL
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    readable = {"code": code, "message": text}
    return {**readable, "data": fields["data"]} if fields.get("data") is not None else readable


class AmbiguousJson(ValueError):
    """JSON that names one member twice: parsers differ in which they keep, so a model could be
    shown another tool than the one that was scanned (RFC 7493, 2.3 forbids it)."""


def parse_message(text: str) -> Any:
    """The JSON value. Raises ValueError (NaN, infinities and 1e999 too, and nesting deeper than
    MAX_DEPTH) or RecursionError; Ambiguous where a member is named twice."""
    message = json.loads(
        text,
        parse_constant=_refuse_constant,
        parse_float=_parse_finite,
        object_pairs_hook=_refuse_ambiguous,
    )
    level = [message]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in _iter_parts(container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return message
    raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _iter_parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _refuse_ambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise AmbiguousJson(f"an object names {str(find_repeated_name(pairs))[:60]!r} twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is beyond every number")
    return number


def _make_hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else repr(value)


_BREACHES = {"memory": "out_of_memory", "processes": "too_many_processes", "disk": "disk_full"}


@dataclass(frozen=True)
class ProbeEvidence:
    """All that is known when a launch is over. `failure` is how the conversation ended, None when
    it reached its end; `answered` whether `initialize` was; `exited` whether the server ended by
    itself, then with `code` or `signal`."""

    transcript: ServerTranscript
    failure: ProbeFailure | None
    breach: LimitBreach | None = None
    answered: bool = False
    exited: bool = False
    code: int | None = None
    signal: str | None = None


def classify_evidence(ended_with: ProbeEvidence) -> ProbeFailure | None:
    """The strongest evidence first: a limit that was passed, an exit, then the conversation."""
    transcript, breach, failure = ended_with.transcript, ended_with.breach, ended_with.failure
    # What went wrong after the last list of tools was only asked for besides.
    if transcript.oversize and failure:
        return ProbeFailure("oversize", transcript.oversize)
    if transcript.broken and failure:
        return ProbeFailure("protocol_error", transcript.broken)
    if breach and breach.limit in _BREACHES:
        return ProbeFailure(_BREACHES[breach.limit], breach.found)
    if breach:
        return ProbeFailure(
            "timeout_list" if ended_with.answered else "timeout_start", breach.found
        )
    if failure is None:
        return (
            None if any([transcript.tools, *transcript.earlier]) else ProbeFailure("no_tools", "")
        )
    if failure.kind in ("timeout_start", "timeout_list", "oversize"):
        if failure.kind != "oversize" and transcript.noise > transcript.greeted:
            detail = (
                f"{transcript.noise} lines that are no JSON-RPC, first {transcript.first_noise}"
            )
            return ProbeFailure("protocol_error", detail)
        if failure.kind == "oversize":
            return failure
        cause = classify_text(make_printable(transcript.stderr))  # one that hangs often said why
        return ProbeFailure(cause.kind, f"{failure.detail}, {cause.detail}") if cause else failure
    if ended_with.exited:
        return classify_last_words(
            make_printable(transcript.stderr) + transcript.first_noise,
            ended_with.code,
            ended_with.signal,
        )
    if "code -32601" in failure.detail and ended_with.answered:
        return ProbeFailure("no_tools", "tools/list is not a method of this server")
    if "code" in failure.detail and not transcript.ended:
        cause = classify_text(failure.detail)  # it may say the same things a dying server says
        return ProbeFailure(cause.kind, f"answered {failure.detail!r}") if cause else failure
    if transcript.ended:
        return ProbeFailure("protocol_error", "it closed its standard output and went on running")
    return failure


def make_printable(data: bytes) -> str:
    """Text without control characters: it ends up in logs and tables."""
    text = data.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


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
