"""The probe: launches a server, lists what it offers, and asks again as somebody else."""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio

from assets.contracts.canonical import ContractError, contract_digest
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.session import ProbePolicy, ProbeProgress, hold_conversation
from assets.servers.probe.transcript import (
    ProbeEvidence,
    ServerTranscript,
    StdioRelay,
    classify_evidence,
    make_printable,
)
from assets.servers.sandbox.process import start
from assets.servers.sandbox.spec import (
    BackendCommand,
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
)
from assets.servers.sandbox.watchdog import SandboxWatchdog
from warehouse.storage.digest import sha256

PROBE_VERSION = 2
_STDERR_TAIL = 2000


@dataclass(frozen=True)
class ProbeResult:
    """How one launch went. status `ok` or `failed` with `error_kind` and `hint` of the taxonomy.

    tools: the raw `tools/list` entries of all pages (untrusted), and `later` those of further
    listings in the same session. prompts, resources, templates: raw entries too. seconds: from
    start to the last page of tools; initialize_s: to the answered handshake. peak_mb: largest
    proportional set size of the process tree, MiB; 0 for a server elsewhere. missed: announced
    lists that could not be had. faults: what it breaks of the protocol, that was read all the same.
    stdout_text: how what it printed besides messages begins.
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
    stdout_text: str = ""
    faults: list[str] = field(default_factory=list)
    pages: int = 0
    exit_code: int | None = None
    signal: str | None = None
    initiated: int = 0  # requests and notifications the server started
    refused: list[str] = field(default_factory=list)  # hosts that it was not granted
    retry_after: float | None = None  # seconds that a remote server asked us to stay away


def probe(
    launch: SandboxLaunch | BackendCommand, policy: SandboxPolicy, limits: ProbePolicy | None = None
) -> ProbeResult:
    """Launches a server, lists what it offers and ends it. Whatever the server does is a result;
    raises only SandboxUnavailable."""
    limits = limits or ProbePolicy()
    import_module("mcp")  # its first import takes 0.4 s, which are not the server's
    progress = ProbeProgress(time.monotonic())
    try:
        started = start(launch, policy)
    except LaunchRefused as error:
        failure = ProbeFailure(error.kind, str(error))
        return ProbeResult("failed", failure.kind, failure.hint)
    with started as jailed:
        watchdog, relay = SandboxWatchdog(jailed, policy), StdioRelay(jailed, policy)
        transcript = relay.transcript

        async def converse() -> None:
            """A server that never ends its part is cut off by the time limits."""
            streams = (relay.read, relay.write, transcript)
            async with anyio.create_task_group() as tasks:
                relay.start(tasks)
                try:
                    await hold_conversation(*streams, limits, progress, lambda: watchdog.idle_s)
                finally:
                    tasks.cancel_scope.cancel()

        with watchdog:
            anyio.run(converse)
            ended = time.monotonic() - progress.began
            watchdog.measure()
            exited = jailed.ends_within(1.0) if transcript.ended else False
            code, signal = jailed.exit_status() if exited else (None, None)
            jailed.kill()
        with suppress(OSError, ValueError):  # what the dead server still had in the pipe
            while (stderr := jailed.process.stderr) and (chunk := stderr.read(65_536)):
                transcript.keep_stderr(chunk)
    evidence = ProbeEvidence(
        transcript, progress.failure, watchdog.breach, progress.answered, exited, code, signal
    )
    peak_mb, verdict = round(watchdog.peak_mb, 1), classify_evidence(evidence)
    exit_facts = {"exit_code": code, "signal": signal}
    return make_result(transcript, progress, verdict, ended, peak_mb=peak_mb, **exit_facts)


def make_result(
    transcript: ServerTranscript,
    progress: ProbeProgress,
    failure: ProbeFailure | None,
    ended: float,
    **more: Any,
) -> ProbeResult:
    """The result of a conversation over any transport. ended: seconds since it began."""
    info, announced = transcript.server.get("serverInfo"), transcript.server.get("capabilities")
    version = progress.protocol or transcript.server.get("protocolVersion")
    instructions = transcript.server.get("instructions")
    turns = [*transcript.earlier, transcript.tools]
    listings = [[tool for tool in turn if isinstance(tool, dict)] for turn in turns]
    seconds = progress.listed_s if progress.listed_s is not None else ended
    first = progress.initialize_s
    return ProbeResult(
        status="failed" if failure else "ok",
        error_kind=failure.kind if failure else None,
        hint=failure.hint if failure else None,
        server_info=info if isinstance(info, dict) else {},
        protocol=version[:40] if isinstance(version, str) else None,
        capabilities=sorted(announced)[:40] if isinstance(announced, dict) else [],
        tools=[] if failure else listings[0],
        later=[] if failure else listings[1:],
        prompts=transcript.lists.get("prompts", []),
        resources=transcript.lists.get("resources", []),
        templates=transcript.lists.get("resourceTemplates", []),
        missed=list(progress.missed),
        instructions=instructions[:20_000] if isinstance(instructions, str) else "",
        seconds=round(seconds, 3),
        initialize_s=None if first is None else round(first, 3),
        stderr_tail=make_printable(transcript.stderr)[-_STDERR_TAIL:],
        stdout_text=transcript.noise_text,
        faults=transcript.faults,
        pages=progress.pages,
        initiated=transcript.initiated,
        **more,
    )


# The identity of a widespread desktop client: what a server that chooses its victims looks for.
OTHER = {"client_name": "claude-ai", "client_version": "0.1.0"}
LISTS = 3
DAYS = 45
_CLOCK = "/srv/clock"
_DATE = re.compile(
    r"\d+|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)[a-z]*",
    re.IGNORECASE,
)

Tool = Mapping[str, Any]
Ask = Callable[[ProbePolicy, bool], ProbeResult]


@dataclass(frozen=True)
class BehaviourDifference:
    """One tool that was not the same to everybody.

    change: added, removed or changed against the first listing; dated where only numbers and names
    of days and months differ, as in "Today is 22 November". varied: what was different when it
    was: `client name`, `date`, `call count`, or `nothing`: it differs by itself.
    """

    tool: str
    change: str
    varied: str

    def as_row(self) -> dict[str, str]:
        return asdict(self)


def probe_again(
    first: ProbeResult, limits: ProbePolicy, ask: Ask
) -> list[BehaviourDifference] | None:
    """Every difference between what `first` listed and what others are told; [] for an honest
    server, None where no second answer could be had.

    ask(limits, moved): probes the same server again, with its clock moved when `moved`. Costs one
    probe, and up to two more for a server that differs.
    """
    limits = replace(limits, extras_s=0.0)
    other = ask(replace(limits, **OTHER, lists=LISTS), True)
    if other.status != "ok":
        return None
    digests = digest_tools(first.tools)

    def compare_first(result: ProbeResult) -> dict[str, str]:
        changes = compare_digests(digests, digest_tools(result.tools))
        return changes if result.status == "ok" else {}

    counted, between = _compare_listings(other), compare_first(other)
    if not between and not counted:
        return []
    control = ask(replace(limits, lists=LISTS), False)
    itself = compare_first(control)
    if control.status == "ok":
        counted |= _compare_listings(control)
    by_name: dict[str, str] = {}
    if between.keys() - itself.keys():
        by_name = compare_first(ask(replace(limits, **OTHER), False))
    differences = [BehaviourDifference(tool, change, "nothing") for tool, change in itself.items()]
    for tool, change in counted.items():
        if tool not in itself:
            differences.append(BehaviourDifference(tool, change, "call count"))
    for tool, change in between.items():
        if tool in by_name and tool not in itself:
            differences.append(BehaviourDifference(tool, change, "client name"))
        elif tool not in itself:
            texts = [
                [_DATE.sub("#", json.dumps(entry, sort_keys=True)) for entry in result.tools
                 if str(entry.get("name"))[:200] == tool]
                for result in (first, other)
            ]  # fmt: skip
            change = "dated" if change == "changed" and texts[0] == texts[1] else change
            differences.append(BehaviourDifference(tool, change, "date"))
    return sorted(differences, key=lambda difference: (difference.tool, difference.varied))


def digest_tools(tools: Iterable[Tool]) -> dict[str, str]:
    """Name -> contract digest; a tool without a usable contract by the digest of its JSON."""
    digests: dict[str, str] = {}
    for tool in tools:
        try:
            name = contract_digest(tool)
        except ContractError:
            name = sha256(json.dumps(tool, sort_keys=True).encode())
        digests.setdefault(str(tool.get("name"))[:200], name)
    return digests


def compare_digests(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Tool -> added, removed or changed."""
    changes = {}
    for tool in before.keys() | after.keys():
        if before.get(tool) != after.get(tool):
            gone, new = tool not in after, tool not in before
            changes[tool] = "removed" if gone else "added" if new else "changed"
    return changes


def move_clock(launch: SandboxLaunch, days: int = DAYS) -> SandboxLaunch:
    """The same launch with its wall clock `days` ahead, where its runtime is Python or Node.

    Sleeping and waiting stay as they are. Programs in other languages keep the real date.
    """
    env = dict(launch.env)
    env["CLOCK_OFFSET_S"] = str(days * 86_400)
    env["PYTHONPATH"] = ":".join(filter(None, [_CLOCK, env.get("PYTHONPATH")]))
    options = [env.get("NODE_OPTIONS"), f"--require={_CLOCK}/date.js"]
    env["NODE_OPTIONS"] = " ".join(filter(None, options))
    return replace(launch, env=env, mounts=(*launch.mounts, *_mount_clock()))


@lru_cache(maxsize=1)
def _mount_clock() -> tuple[SandboxMount, ...]:
    """The files that move a clock, file by file: a server sees nothing else of ours."""
    here = Path(__file__).parent / "clock"
    mounts = [
        SandboxMount(here / name, f"{_CLOCK}/{name}") for name in ("sitecustomize.py", "date.js")
    ]
    for module in ("time_machine", "_time_machine"):
        spec = find_spec(module)
        if spec and spec.origin:
            path = Path(spec.origin)
            whole = path.parent if path.name == "__init__.py" else path
            mounts.append(SandboxMount(whole, f"{_CLOCK}/{whole.name}"))
    return tuple(mounts)


def _compare_listings(result: ProbeResult) -> dict[str, str]:
    """What differs between the first and a later listing of one session."""
    first = digest_tools(result.tools)
    changes: dict[str, str] = {}
    for later in result.later:
        changes |= compare_digests(first, digest_tools(later))
    return changes
