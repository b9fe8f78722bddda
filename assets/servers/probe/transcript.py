"""The transcript of a connection: messages a session may see, and the verdict on its evidence."""

import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from assets.servers.probe.failure_kinds import ProbeFailure, classify_last_words, classify_text
from assets.servers.probe.json_message import AmbiguousJson, OversizeMessage, read_message
from assets.servers.sandbox.process import SandboxProcess
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.watchdog import LimitBreach

MAX_INITIATED = 200  # requests and notifications of the server that are listened to
MAX_NOISE = 5000  # lines or events that are no messages
_NOISE_KEPT = 4096  # characters of them: a usage text, most often
MAX_UNASKED = 50_000  # messages that answer nothing: each costs us more than it costs the server

DISCOVER = "server/discover"  # in place of `initialize` since 2026-07-28
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

BREAKS_PROTOCOL = "the server speaks MCP, and clients refuse this answer"
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
    faults: list[str] = field(default_factory=list)  # of its answers, that clients trip over
    page_size: int = 0  # entries of the last page
    malformed_page: str | None = None
    broken: str | None = None  # a message that no two parsers read alike, or an answer without use
    oversize: str | None = None
    noise: int = 0
    greeted: int = 0  # the noise until `initialize` was answered
    noise_text: str = ""  # how what is no message begins
    strays: int = 0  # answers to nothing that was asked
    first_stray: str = ""  # the id of the first
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

    def note_fault(self, fault: str) -> None:
        """Notes, once, what a client may refuse."""
        if fault not in self.faults:
            self.faults.append(fault)

    def drop_repeated_page(self) -> None:
        """Forgets the last page of tools where it is one that came before."""
        size, tools = self.page_size, self.tools
        starts = range(len(tools) - 2 * size + 1)
        if size and any(tools[at : at + size] == tools[-size:] for at in starts):
            del tools[-size:]

    @property
    def first_noise(self) -> str:
        return self.noise_text.partition("\n")[0][:160]

    @property
    def tools(self) -> list[Any]:
        return self.lists.get("tools", [])

    def begin_listing(self) -> None:
        """Begins another listing of the tools."""
        self.earlier.append(self.lists.pop("tools", []))

    def take_back(self) -> None:
        """Forgets the listing that was begun last."""
        self.lists["tools"] = self.earlier.pop()

    def keep_stderr(self, chunk: bytes) -> None:
        """Keeps the end of what the server writes to its standard error."""
        self.stderr = (self.stderr + chunk)[-16_384:]


class MessageFilter:
    """Filters one connection's messages: `note_request` what goes out, `take` what comes in.

    stale: the server has said that its tools have changed. progress: token of a call that is told
    of its progress -> who takes (progress, total).
    """

    def __init__(self) -> None:
        self.transcript = ServerTranscript()
        self.stale = False
        self.progress: dict[str, Callable[[float, float | None], None]] = {}
        self._asked: dict[str, tuple[Any, str]] = {}

    def note_request(self, message: dict[str, Any]) -> None:
        """Notes a request of ours, so that its answer is known."""
        if "method" in message and "id" in message:
            self._asked[_spell_id(message["id"])] = (message["id"], message["method"])

    def take(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The message as the session may see it, or None where it may not."""
        transcript = self.transcript
        if message.get("method") == "notifications/tools/list_changed":
            self.stale = True
        if message.get("method") == "notifications/progress":
            self._note_progress(message.get("params"))
        if "method" in message:
            transcript.initiated += 1
            # Requests are passed on, to be declined by the session; notifications say nothing that
            # a probe needs, and a storm of them must not reach it.
            listened = "id" in message and transcript.initiated <= MAX_INITIATED
            return message if listened else None
        error, result, spelled = message.get("error"), message.get("result"), message.get("id")
        if spelled is None and error and len(self._asked) == 1:
            spelled = next(iter(self._asked))  # JSON-RPC: null where the id could not be read
        asked = self._asked.pop(_spell_id(spelled), None)
        if asked is None:
            transcript.note_error(error)
            transcript.strays += 1
            transcript.first_stray = transcript.first_stray or repr(spelled)[:60]
            return None
        request_id, method = asked
        if spelled != request_id and message.get("id") is not None:
            transcript.note_fault(f"it answers ids of type int as {type(spelled).__name__}")
        message = {**message, "id": request_id}
        if isinstance(result, dict):
            if method == "initialize":
                return {**message, "result": self._keep_greeting(result)}
            if method == DISCOVER:
                return {**message, "result": self._keep_discovery(result)}
            if method in LISTS:
                return {**message, "result": self._keep_page(LISTS[method], result)}
        elif method in _NEEDED and "result" in message:
            kind = type(result).__name__
            transcript.broken = f"the result of `{method}` is {kind}, expected an object"
        # As JSON-RPC has it: an answer of odd form would leave its call waiting.
        framed = {name: message[name] for name in ("jsonrpc", "id") if name in message}
        if isinstance(result, dict) and not error:  # some write `false` or `{}` beside it
            return {**framed, "result": result}
        if error is not None:
            fields = error if isinstance(error, dict) else {"message": error}
            code, message = fields.get("code"), fields.get("message", "an error without a message")
            if isinstance(code, float) and code.is_integer():
                code = int(code)
            if not isinstance(code, int) or isinstance(code, bool):
                code = _INTERNAL
            text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
            readable = {"code": code, "message": text}
            error = (
                {**readable, "data": fields["data"]} if fields.get("data") is not None else readable
            )
            transcript.note_error(error)
            return {**framed, "error": error}
        detail = f"the result is {type(result).__name__}, expected an object"
        return {**framed, "error": {"code": _INTERNAL, "message": detail}}

    def _note_progress(self, params: Any) -> None:
        """Hands on the numbers; a server's words go no way around the scan of results."""
        params = params if isinstance(params, dict) else {}
        token, done, total = (params.get(name) for name in ("progressToken", "progress", "total"))
        take = self.progress.get(token) if isinstance(token, str) else None
        if take is not None and _is_number(done):
            take(float(done), float(total) if _is_number(total) else None)

    def count_noise(self, excerpt: str) -> None:
        """Counts something that is no message."""
        transcript = self.transcript
        transcript.noise += 1
        if len(transcript.noise_text) < _NOISE_KEPT:
            transcript.noise_text += f"{excerpt[:500]}\n"

    def _keep_greeting(self, result: dict[str, Any]) -> dict[str, Any]:
        """Keeps the raw answer to `initialize`. One that names another version is spoken to as if
        it had named ours: servers that copy a date seldom mean more by it."""
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

        self.transcript.server, version = result, result.get("protocolVersion")
        if not isinstance(version, str) or version in HANDSHAKE_PROTOCOL_VERSIONS:
            return result
        self.transcript.note_fault(
            f"it answers `initialize` in version {version[:40]!r}, and"
            f" {LATEST_HANDSHAKE_VERSION} was asked for"
        )
        return {**result, "protocolVersion": LATEST_HANDSHAKE_VERSION}

    def _keep_discovery(self, result: dict[str, Any]) -> dict[str, Any]:
        """Keeps the raw answer to `server/discover`; the session gets the members that it needs."""
        meta, capabilities = result.get("_meta"), result.get("capabilities")
        info = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
        self.transcript.server = {**result, "serverInfo": info}
        if isinstance(capabilities, dict):
            return {**_CACHED, **result}
        self.transcript.note_fault("its answer to `server/discover` names no capabilities")
        return {**_CACHED, **result, "capabilities": {}}

    def _keep_page(self, member: str, result: dict[str, Any]) -> dict[str, Any]:
        """Keeps the raw entries; the session gets an empty page with the same cursor."""
        entries, cursor = result.get(member), result.get("nextCursor")
        if isinstance(entries, list):
            self.transcript.lists.setdefault(member, []).extend(entries)
            self.transcript.page_size = len(entries)
            if any(not isinstance(entry, dict) for entry in entries):
                self.transcript.note_fault(f"an entry of `{member}` is no object")
        elif member == "tools":
            found = "null" if entries is None else type(entries).__name__
            found = found if member in result else "missing"
            self.transcript.malformed_page = f"`tools` is {found}, expected a list"
        page: dict[str, Any] = {member: [], **_CACHED}
        if cursor is None:
            return page
        if not isinstance(cursor, str):
            kind = type(cursor).__name__
            self.transcript.note_fault(f"`nextCursor` of `{member}` is {kind}, expected a text")
        # A number is followed as it is spelled; what is neither text nor number leads nowhere.
        leads = isinstance(cursor, str | int | float) and not isinstance(cursor, bool)
        return {**page, **({"nextCursor": str(cursor)} if leads else {})}


# A result needs these since 2026-07-28; a session of an older version leaves them out.
_CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _spell_id(value: Any) -> str:
    """An id as a text: some servers send 1 back as "1", or as 1.0."""
    whole = isinstance(value, float) and value.is_integer()
    return value if isinstance(value, str) else str(int(value) if whole else value)


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


def classify_evidence(evidence: ProbeEvidence) -> ProbeFailure | None:
    """The strongest evidence first: a limit that was passed, an exit, then the conversation."""
    transcript, breach, failure = evidence.transcript, evidence.breach, evidence.failure
    # What went wrong after the last list of tools was only asked for besides.
    if transcript.oversize and failure:
        return ProbeFailure("oversize", transcript.oversize)
    if transcript.broken and failure:
        return ProbeFailure("protocol_error", transcript.broken, BREAKS_PROTOCOL)
    if breach:
        late = "timeout_list" if evidence.answered else "timeout_start"
        return ProbeFailure(_BREACHES.get(breach.limit, late), breach.found)
    if failure is None:
        listed = any([transcript.tools, *transcript.earlier])
        return None if listed else ProbeFailure("no_tools", "")
    stderr = make_printable(transcript.stderr)
    if failure.kind == "oversize":
        return failure
    if failure.kind in ("timeout_start", "timeout_list"):
        if transcript.noise > transcript.greeted:
            detail = f"{transcript.noise} lines that are no JSON-RPC"
            return ProbeFailure("protocol_error", f"{detail}, first {transcript.first_noise!r}")
        if transcript.strays:
            detail = f"{transcript.strays} answers to ids that nobody sent, first"
            detail += f" {transcript.first_stray}"
            return ProbeFailure("protocol_error", detail, BREAKS_PROTOCOL)
        cause = classify_text(stderr)  # one that hangs often said why
        return ProbeFailure(cause.kind, f"{failure.detail}, {cause.detail}") if cause else failure
    if evidence.exited:
        words = f"{stderr}\n{transcript.noise_text}"
        return classify_last_words(words, evidence.code, evidence.signal)
    if "code -32601" in failure.detail and evidence.answered:
        return ProbeFailure("no_tools", "tools/list is not a method of this server")
    if transcript.ended:
        return ProbeFailure("protocol_error", "it closed its standard output and went on running")
    if "code" in failure.detail:
        cause = classify_text(failure.detail)  # it may say the same things a dying server says
        return ProbeFailure(cause.kind, f"answered {failure.detail!r}") if cause else failure
    return failure


def make_printable(data: bytes) -> str:
    """Text without control characters: it ends up in logs and tables."""
    text = data.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


_CHUNK = 1 << 16
_MIB = 1024 * 1024


class StdioRelay:
    """Carries messages between a session and a sandboxed server's standard streams: three tasks
    beside the session, whose streams `read` and `write` are."""

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
        buffer, transcript = bytearray(), self.transcript
        try:
            async with self._to_session:
                while chunk := await _read(self._jailed.process.stdout):
                    self.total += len(chunk)
                    if self.total > self._policy.stdout_mb * _MIB:
                        transcript.oversize = f"more than {self._policy.stdout_mb} MB on stdout"
                        return
                    buffer += chunk
                    if b"\n" in chunk:
                        *lines, remainder = bytes(buffer).split(b"\n")
                        buffer = bytearray(remainder)
                        self._blank += lines.count(b"")
                        for line in filter(None, lines):
                            await self._take_line(line)
                    self._note_excess(len(buffer))
                    if transcript.oversize or transcript.broken:
                        return
                    await anyio.lowlevel.checkpoint()  # a flood must not starve the clocks
                transcript.ended = True
        finally:
            self.over.set()

    def _note_excess(self, waiting: int) -> None:
        transcript = self.transcript
        if waiting > self._policy.message_mb * _MIB:
            transcript.oversize = f"a message of more than {self._policy.message_mb} MB"
        elif max(transcript.noise, self._blank) > MAX_NOISE:
            transcript.oversize = f"more than {MAX_NOISE} lines that are no messages"
        elif transcript.initiated + transcript.strays > MAX_UNASKED:
            transcript.oversize = f"more than {MAX_UNASKED} messages that nobody asked for"

    async def _take_line(self, line: bytes) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        if not line.strip() or self.transcript.noise > MAX_NOISE or self.transcript.broken:
            return
        if len(line) > self._policy.message_mb * _MIB:
            self._note_excess(len(line))
            return
        try:
            parsed = await read_message(line.decode("utf-8"))
        except AmbiguousJson as error:
            self.transcript.broken = str(error)
            return
        except OversizeMessage as error:
            self.transcript.oversize = str(error)
            return
        except (ValueError, RecursionError):
            parsed = None
        for item in (parsed if isinstance(parsed, list) else [parsed])[:100]:
            if not isinstance(item, dict) or item.get("jsonrpc") != "2.0":
                self.listener.count_noise(make_printable(line[:500]).rstrip())
            elif (message := self.listener.take(item)) is not None:
                try:
                    ready = SessionMessage(jsonrpc_message_adapter.validate_python(message))
                    await self._to_session.send(ready)
                except ValueError:
                    self.listener.count_noise(repr(message)[:120])
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass

    async def _read_stderr(self) -> None:
        while chunk := await _read(self._jailed.process.stderr):
            self.transcript.keep_stderr(chunk)

    async def _write_stdin(self) -> None:
        """Ends where the server closed its input. One that does not read holds up this task."""
        stream: Any = self._jailed.process.stdin
        async with self._from_session:
            async for item in self._from_session:
                message = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                self.listener.note_request(message)
                data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
                while data:
                    try:
                        data = data[os.write(stream.fileno(), data) :]
                    except BlockingIOError:
                        await anyio.wait_writable(stream)
                    except (OSError, ValueError):
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
