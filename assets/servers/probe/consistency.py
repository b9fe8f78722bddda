"""Whether a server's contracts depend on who asks: another client, another date, another call.

A poisoned server may show its maker's clients, or a scan of today, other tools than it will show
a user in a month. So a server that listed its tools gets a differential probe: it is asked under
another name and date, and three times over in one session.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, contract_digest
from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.session import ProbePolicy
from assets.servers.sandbox.spec import Launch, Mount
from warehouse.storage.digest import sha256

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
class Behaviour:
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


def probe_again(first: ProbeResult, limits: ProbePolicy, ask: Ask) -> list[Behaviour] | None:
    """Every difference between what `first` listed and what others are told; [] for an honest
    server, None where no second answer could be had.

    ask(limits, moved): probes the same server again, with its clock moved when `moved`. Costs one
    probe, and up to two more for a server that differs.
    """
    limits = replace(limits, extras_s=0.0)
    other = ask(replace(limits, **OTHER, lists=LISTS), True)
    if other.status != "ok":
        return None
    seen = digest_tools(first.tools)
    counted = _compare_listings(other)
    between = compare_digests(seen, digest_tools(other.tools))
    if not between and not counted:
        return []
    control = ask(replace(limits, lists=LISTS), False)
    itself = compare_digests(seen, digest_tools(control.tools)) if control.status == "ok" else {}
    found = [Behaviour(tool, change, "nothing") for tool, change in itself.items()]
    again = _compare_listings(control) if control.status == "ok" else {}
    counts = {tool: change for tool, change in {**counted, **again}.items() if tool not in itself}
    found += [Behaviour(tool, change, "call count") for tool, change in counts.items()]
    between = {tool: change for tool, change in between.items() if tool not in itself}
    if between:
        named = ask(replace(limits, **OTHER), False)
        by_name = compare_digests(seen, digest_tools(named.tools)) if named.status == "ok" else {}
        found += [
            Behaviour(tool, change, "client name")
            if tool in by_name
            else Behaviour(tool, _classify_dated(tool, change, first, other), "date")
            for tool, change in between.items()
        ]
    return sorted(found, key=lambda one: (one.tool, one.varied))


def digest_tools(tools: Iterable[Tool]) -> dict[str, str]:
    """Name -> contract digest; a tool without a usable contract by the digest of its JSON."""
    found: dict[str, str] = {}
    for tool in tools:
        try:
            name = contract_digest(tool)
        except ContractError:
            name = sha256(json.dumps(tool, sort_keys=True).encode())
        found.setdefault(str(tool.get("name"))[:200], name)
    return found


def compare_digests(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Tool -> added, removed or changed."""
    found = {}
    for tool in before.keys() | after.keys():
        if before.get(tool) != after.get(tool):
            gone, new = tool not in after, tool not in before
            found[tool] = "removed" if gone else "added" if new else "changed"
    return found


def move_clock(launch: Launch, days: int = DAYS) -> Launch:
    """The same launch with its wall clock `days` ahead, where its runtime is Python or Node.

    Sleeping and waiting stay as they are. Programs in other languages keep the real date.
    """
    env = dict(launch.env)
    env["CLOCK_OFFSET_S"] = str(days * 86_400)
    env["PYTHONPATH"] = ":".join([_CLOCK, *filter(None, [env.get("PYTHONPATH")])])
    env["NODE_OPTIONS"] = " ".join(
        [*filter(None, [env.get("NODE_OPTIONS")]), f"--require={_CLOCK}/date.js"]
    )
    return replace(launch, env=env, mounts=(*launch.mounts, *_mount_clock()))


@lru_cache(maxsize=1)
def _mount_clock() -> tuple[Mount, ...]:
    """The files that move a clock, file by file: a server sees nothing else of ours."""
    here = Path(__file__).parent / "clock"
    mounts = [Mount(here / name, f"{_CLOCK}/{name}") for name in ("sitecustomize.py", "date.js")]
    for module in ("time_machine", "_time_machine"):
        spec = find_spec(module)
        if spec and spec.origin:
            path = Path(spec.origin)
            whole = path.parent if path.name == "__init__.py" else path
            mounts.append(Mount(whole, f"{_CLOCK}/{whole.name}"))
    return tuple(mounts)


def _classify_dated(tool: str, change: str, first: ProbeResult, other: ProbeResult) -> str:
    """`dated` for a tool that says the same but for the date in it."""
    texts = [
        [_DATE.sub("#", json.dumps(one, sort_keys=True)) for one in result.tools
         if str(one.get("name"))[:200] == tool]
        for result in (first, other)
    ]  # fmt: skip
    return "dated" if change == "changed" and texts[0] == texts[1] else change


def _compare_listings(result: ProbeResult) -> dict[str, str]:
    """What differs between the first and a later listing of one session."""
    first = digest_tools(result.tools)
    found: dict[str, str] = {}
    for later in result.later:
        found |= compare_digests(first, digest_tools(later))
    return found
