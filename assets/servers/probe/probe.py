"""The probe: start one server in the sandbox, hold the conversation, end it."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import anyio

from assets.servers.probe.classify import Evidence, classify_evidence, make_printable
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.session import ProbePolicy, Progress, hold_conversation
from assets.servers.probe.stdio_relay import Relay
from assets.servers.probe.transcript import Transcript
from assets.servers.sandbox.backend import Command, LaunchRefused
from assets.servers.sandbox.process import Jailed, start
from assets.servers.sandbox.spec import Launch, SandboxPolicy
from assets.servers.sandbox.watchdog import Watchdog

PROBE_VERSION = 2
_STDERR_TAIL = 2000


@dataclass(frozen=True)
class ProbeResult:
    """How one launch went. status `ok` or `failed` with `error_kind` and `hint` of the taxonomy.

    tools: the raw `tools/list` entries of all pages (untrusted), and `later` those of further
    listings in the same session. prompts, resources, templates: raw entries too. seconds: from
    start to the last page of tools; initialize_s: to the answered handshake. peak_mb: largest
    proportional set size of the process tree, MiB; 0 for a server elsewhere. missed: announced
    lists that could not be had.
    """

    status: str
    error_kind: str | None = None
    hint: str | None = None
    server_info: dict[str, Any] = field(default_factory=dict)
    protocol: str | None = None
    capabilities: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    later: list[list[dict[str, Any]]] = field(default_factory=list)
    prompts: list[Any] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    templates: list[Any] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    instructions: str = ""  # what the server tells models about itself
    seconds: float = 0.0
    initialize_s: float | None = None
    peak_mb: float = 0.0
    stderr_tail: str = ""
    pages: int = 0
    exit_code: int | None = None
    signal: str | None = None
    initiated: int = 0  # requests and notifications the server started
    refused: list[str] = field(default_factory=list)  # hosts that it was not granted
    retry_after: float | None = None  # seconds that a remote server asked us to stay away


def probe(
    launch: Launch | Command, policy: SandboxPolicy, conversation: ProbePolicy | None = None
) -> ProbeResult:
    """Launches a server, lists what it offers and ends it. Whatever the server does is a result;
    raises only SandboxUnavailable."""
    limits = conversation or ProbePolicy()
    import_module("mcp")  # its first import takes 0.4 s, which are not the server's
    progress = Progress(time.monotonic())
    try:
        started = start(launch, policy)
    except LaunchRefused as error:
        failure = Failure(error.kind, str(error))
        return ProbeResult("failed", failure.kind, failure.hint)
    with started as jailed:
        watchdog = Watchdog(jailed, policy)
        relay = Relay(jailed, policy)
        with watchdog:
            anyio.run(_hold_conversation, relay, watchdog, limits, progress)
            ended = time.monotonic() - progress.began
            watchdog.measure()
            exited = jailed.ends_within(1.0) if relay.transcript.ended else False
            code, signal = jailed.exit_status() if exited else (None, None)
            jailed.kill()
        _drain_stderr(jailed, relay.transcript)
    failure = classify_evidence(
        Evidence(
            relay.transcript,
            progress.failure,
            breach=watchdog.breach,
            answered=progress.answered,
            exited=exited,
            code=code,
            signal=signal,
        )
    )
    return make_result(
        relay.transcript,
        progress,
        failure,
        ended,
        peak_mb=round(watchdog.peak_mb, 1),
        exit_code=code,
        signal=signal,
    )


def make_result(
    transcript: Transcript, progress: Progress, failure: Failure | None, ended: float, **more: Any
) -> ProbeResult:
    """The result of a conversation over any transport. ended: seconds since it began."""
    info, announced = transcript.server.get("serverInfo"), transcript.server.get("capabilities")
    version = progress.protocol or transcript.server.get("protocolVersion")
    instructions = transcript.server.get("instructions")
    turns = [*transcript.earlier, transcript.tools]
    listed = [[tool for tool in turn if isinstance(tool, dict)] for turn in turns]
    seconds = progress.listed_s if progress.listed_s is not None else ended
    first = progress.initialize_s
    return ProbeResult(
        status="failed" if failure else "ok",
        error_kind=failure.kind if failure else None,
        hint=failure.hint if failure else None,
        server_info=info if isinstance(info, dict) else {},
        protocol=version[:40] if isinstance(version, str) else None,
        capabilities=sorted(announced)[:40] if isinstance(announced, dict) else [],
        tools=[] if failure else listed[0],
        later=[] if failure else listed[1:],
        prompts=transcript.lists.get("prompts", []),
        resources=transcript.lists.get("resources", []),
        templates=transcript.lists.get("resourceTemplates", []),
        missed=list(progress.missed),
        instructions=instructions[:20_000] if isinstance(instructions, str) else "",
        seconds=round(seconds, 3),
        initialize_s=None if first is None else round(first, 3),
        stderr_tail=make_printable(transcript.stderr)[-_STDERR_TAIL:],
        pages=progress.pages,
        initiated=transcript.initiated,
        **more,
    )


async def _hold_conversation(
    relay: Relay, watchdog: Watchdog, limits: ProbePolicy, progress: Progress
) -> None:
    """A server that never ends its part is cut off by the time limits."""
    async with anyio.create_task_group() as tasks:
        relay.start(tasks)
        try:
            await hold_conversation(
                relay.read, relay.write, relay.transcript, limits, progress, lambda: watchdog.idle_s
            )
        finally:
            tasks.cancel_scope.cancel()


def _drain_stderr(jailed: Jailed, transcript: Transcript) -> None:
    """What the dead server still had in the pipe."""
    stream = jailed.process.stderr
    with suppress(OSError, ValueError):
        while stream and (chunk := stream.read(65_536)):
            transcript.stderr = (transcript.stderr + chunk)[-16_384:]
