"""Findings: what the scan says about every tool of one marketplace.

A scan is stored under everything it depends on: the contract, the version of the rules, the names
of other tools that its text mentions, the contracts it is compared with. So a run scans only what
is new. Findings about a list of tools as a whole (`find_behaviour`, `find_misshapen`) come from
what a launch showed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from assets.columns import read_table_spec
from assets.contracts.canonical import FIELDS, TWICE
from assets.contracts.changes import State
from assets.contracts.scan.engine import (
    digest_rules,
    find_mentioned,
    read_name,
    scan_extras,
    scan_names,
    scan_tool,
)
from assets.contracts.scan.rug_pull import find_alarms
from assets.contracts.scan.rule_table import (
    HIGH,
    MEDIUM,
    RULES,
    ScanFinding,
    build_finding,
    build_hit,
    rank_severity,
)
from assets.contracts.vendor_rules import MODERN, VendorRefusal, find_list_refusals, find_refusals
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Row
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.storage.digest import digest

BEHAVIOUR = frozenset(name for name, rule in RULES.items() if rule.family == "behaviour")
_CHANGES = {"added": "only listed", "removed": "not listed", "changed": "listed otherwise",
            "dated": "listed with another date"}  # fmt: skip
_VARIED = {"client name": "to a client of another name", "date": "on another day",
           "call count": "at a later call"}  # fmt: skip
_FIELDS = {name.casefold(): name for name in FIELDS}
_CAP = 200  # findings of one list


def find_behaviour(behaviour: str | None) -> Iterator[tuple[str, ScanFinding]]:
    """(tool, finding) for what a second look at a server showed; `behaviour` as a deployment has
    it: a JSON list of {tool, change, varied}, null when nobody looked again."""
    try:
        changes = json.loads(behaviour) if behaviour else []
    except (ValueError, RecursionError):
        return
    for entry in changes[:_CAP] if isinstance(changes, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("tool"), str):
            change, to_whom = str(entry.get("change")), _VARIED.get(str(entry.get("varied")))
            rule = "depends_on_asker" if to_whom else "unstable"
            rule = "dated" if change == "dated" else rule
            what = _CHANGES.get(change, _CHANGES["changed"])
            what = f"{what} {to_whom or 'when probed again'}"
            yield entry["tool"], _build_finding(entry["tool"], rule, "", what)


def find_misshapen(
    tools: Sequence[Any], problems: Mapping[int, str]
) -> Iterator[tuple[str, ScanFinding]]:
    """(tool, finding) for entries of a raw list without a contract of their own, and for members
    that differ from a field of the protocol by case alone. problems: entry -> what is wrong."""
    for place, problem in list(problems.items())[:_CAP]:
        name = read_name(tools[place])
        rule = "ambiguous_tool" if problem == TWICE else "malformed_tool"
        yield name, _build_finding(name, rule, f"/{place}", problem)
    for place, tool in enumerate(tools[:20_000]):
        keys = [key for key in tool if isinstance(key, str)] if isinstance(tool, Mapping) else []
        odd = [key for key in keys if key not in FIELDS and key.casefold() in _FIELDS]
        for key in odd[:3]:
            what = f"{key[:60]!r} beside the protocol's {_FIELDS[key.casefold()]!r}"
            name = read_name(tool)
            yield name, _build_finding(name, "ambiguous_tool", f"/{place}", what)
        if isinstance(tool, Mapping) and place not in problems:
            # Which protocol a launch spoke is not known here: what both of them refuse.
            modern = any(find_list_refusals(tool, MODERN))
            for refusal in find_list_refusals(tool) if modern else ():
                yield read_name(tool), _build_refused(read_name(tool), refusal)


def find_refused(tools: Sequence[Any], protocol: str) -> Iterator[ScanFinding]:
    """What clients of this protocol and vendors' APIs refuse of a raw list."""
    for tool in tools:
        refusals = find_refusals(tool, protocol) if isinstance(tool, Mapping) else ()
        yield from (_build_refused(read_name(tool), refusal) for refusal in refusals)


def _build_refused(tool: str, refusal: VendorRefusal) -> ScanFinding:
    pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in refusal.path)
    return _build_finding(
        tool, "refused_by_clients", escape_text(pointer[:200]), refusal.describe()
    )


def _build_finding(tool: str, rule: str, field: str, what: str) -> ScanFinding:
    severity, why = RULES[rule].severity, RULES[rule].why
    text = escape_text(what[:200])
    return ScanFinding(escape_text(tool[:200]), rule, severity, field, (0, 0), text, why)


Key = tuple[str, str]  # (server_id, tool)
Contract = tuple[str, str, str]  # server, tool, contract digest: a finding is about one of these

FINDINGS = read_table_spec(__file__, "findings")
SCANS = read_table_spec(__file__, "contract_scans")
_OF_A_RULE = 3  # findings of one rule and severity in one tool: more say nothing new


@dataclass(frozen=True)
class ScanResult:
    """Rows of FINDINGS and of SCANS, and how many contracts were read in this run."""

    rows: list[dict[str, Any]]
    scans: list[dict[str, Any]]
    read: int


@dataclass(frozen=True)
class LaunchOutput:
    """What a launch left besides contracts. tools: the raw list; problems: entry -> why it has no
    contract of its own; behaviour: null when the server was not probed again; extras: what it says
    of itself besides its tools (`scan_extras`), null when it did not run."""

    marketplace: str
    tools: Sequence[Any] = ()
    problems: Mapping[int, str] | None = None
    behaviour: str | None = None
    extras: JsonObject | None = None


def scan_snapshot(
    snapshot: Iterable[Row],
    launches: Mapping[str, LaunchOutput],
    origins: State,
    *,
    scans: Iterable[Row] = (),
    previous: Iterable[Row] = (),
    results: Mapping[Contract, Sequence[ScanFinding]] | None = None,
    run_date: str,
) -> ScanResult:
    """All findings of one marketplace.

    snapshot: rows of SNAPSHOTS; launches: by server; origins: what each tool was before; scans,
    previous: rows of SCANS and FINDINGS of the last run; results: what results of calls showed, by
    contract; run_date: the date of new findings.
    """
    last_scans = {(row["server_id"], row["tool"]): row for row in scans}
    before: dict[str, list[Row]] = defaultdict(list)
    for row in previous:
        before[row["server_id"]].append(row)
    servers: dict[str, list[Row]] = defaultdict(list)
    for row in snapshot:
        servers[row["server_id"]].append(row)
    all_names = frozenset(row["tool"] for rows in servers.values() for row in rows)
    scan_rows: list[dict[str, Any]] = []
    out: list[dict[str, Any]] = []
    read = 0
    for server in sorted(servers.keys() | launches.keys()):
        rows = servers.get(server, [])
        launch = launches.get(server) or LaunchOutput(rows[0]["marketplace"])
        own_names = frozenset(row["tool"] for row in rows)
        scanned = []
        for row in rows:
            key = (server, row["tool"])
            last, past = last_scans.get(key), origins.get(key, {})
            scan = partial(_scan_row, row, own_names, all_names, past, last)
            scanned.append(try_item(scan, partial(_make_unread, row)))
            same = last is not None and last["scan_key"] == scanned[-1]["scan_key"] != ""
            read += not same
        about_server = _scan_extras(server, launch, own_names, last_scans.get((server, "")))
        scan_rows += scanned + about_server
        owner = {"marketplace": launch.marketplace, "server_id": server}
        out += _build_rows(owner, rows, scanned, launch, before[server])
        out += _assign_findings(owner, rows, about_server)
        for row in rows:
            by_results = (results or {}).get((server, row["tool"], row["contract_digest"]), ())
            out += (_build_row(owner, row, row["tool"], finding) for finding in by_results)
    previous_rows = (row for rows in before.values() for row in rows)
    key = itemgetter(*FINDINGS.key)
    dates = {key(row): row["first_seen"] for row in previous_rows}
    dated: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in out:
        dated.setdefault(key(row), {**row, "first_seen": dates.get(key(row)) or run_date})
    return ScanResult(list(dated.values()), scan_rows, read)


def read_findings(row: Row) -> list[ScanFinding]:
    """The findings kept in a row of SCANS."""
    stored = json.loads(row["found"])
    return [ScanFinding(**{**fields, "span": tuple(fields["span"])}) for fields in stored]


def _scan_extras(
    server: str, launch: LaunchOutput, own_names: frozenset[str], last: Row | None
) -> list[dict[str, Any]]:
    """The row of SCANS of what a server says besides its tools, under no tool's name; [] where it
    says nothing. For a server that did not run the last scan counts."""
    extras = launch.extras
    if extras is None:
        return [dict(last)] if last is not None else []
    if not any(extras.values()):
        return []
    row = {"server_id": server, "tool": "", "contract_digest": ""}

    def scan() -> dict[str, Any]:
        scan_key = digest([digest_rules(), sorted(own_names), json.dumps(extras)])
        if last is not None and last["scan_key"] == scan_key:
            return dict(last)
        return _build_scan(row, scan_key, scan_extras(extras, own_names))

    return [try_item(scan, partial(_make_unread, row))]


def _assign_findings(
    owner: Row, rows: Sequence[Row], about_server: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """Rows of FINDINGS of what a server says besides its tools. A high one is about every tool: a
    model reads it together with each of them."""
    findings = [finding for row in about_server for finding in read_findings(row)]
    high = [finding for finding in findings if finding.severity == HIGH][:_OF_A_RULE]
    for finding in findings:
        for row in rows if finding in high and rows else [None]:
            yield _build_row(owner, row, row["tool"] if row else "", finding)


def _scan_row(
    row: Row, own_names: frozenset[str], all_names: frozenset[str], past: Row, last: Row | None
) -> dict[str, Any]:
    """The row of SCANS of one tool."""
    tool = json.loads(row["contract"])
    mentioned = find_mentioned(tool)
    facts = {
        "contract": row["contract_digest"],
        "rules": digest_rules(),
        "own": sorted(mentioned & own_names),
        "elsewhere": sorted((mentioned & all_names) - own_names),
        "past": [past.get("first_digest"), past.get("before_digest")],
        "schema": row["schema_problem"],
    }
    scan_key = digest(facts)
    if last is not None and last["scan_key"] == scan_key:
        return {**_build_scan(row, scan_key, ()), "found": last["found"]}
    history = _compare_history(tool, past, own_names, all_names)
    return _build_scan(row, scan_key, [*scan_tool(tool, own_names, all_names), *history])


def _make_unread(row: Row, hint: str) -> dict[str, Any]:
    """The row of SCANS of a tool whose scan failed: the tool is held, and scanned again."""
    finding = build_finding(row["tool"], "", hint, build_hit("not_scanned", 0, len(hint)))
    return _build_scan(row, "", [finding])


def _build_scan(row: Row, scan_key: str, findings: Iterable[ScanFinding]) -> dict[str, Any]:
    stored = json.dumps([finding.as_row() for finding in limit_findings(findings)])
    names = ("server_id", "tool", "contract_digest")
    return {**{name: row[name] for name in names}, "scan_key": scan_key, "found": stored}


def _compare_history(
    tool: Row, past: Row, own_names: frozenset[str], all_names: frozenset[str]
) -> Iterator[ScanFinding]:
    """What became alarming since the tool was first seen, and since its last other contract."""
    reported: set[tuple[str, str, str]] = set()
    for name in ("first", "before"):
        text = past.get(f"{name}_contract")
        if text is None or past[f"{name}_digest"] == past["contract_digest"]:
            continue
        for alarm in find_alarms(json.loads(text), tool, own_names, all_names):
            if (alarm.rule, alarm.field, alarm.excerpt) not in reported:
                reported.add((alarm.rule, alarm.field, alarm.excerpt))
                yield alarm


def _build_rows(
    owner: Row,
    rows: Sequence[Row],
    scanned: Sequence[Row],
    launch: LaunchOutput,
    previous: Iterable[Row],
) -> Iterator[dict[str, Any]]:
    """Rows of FINDINGS of one server, without their date."""
    by_tool = {row["tool"]: row for row in rows}
    names = list(by_tool)
    findings = [(row["tool"], finding) for row in scanned for finding in read_findings(row)]
    findings += [(names[place], finding) for place, finding in scan_names(names)]
    for tool, problem in ((row["tool"], row["schema_problem"]) for row in rows):
        if problem:
            unusable = _build_finding(tool, "unusable_schema", "/inputSchema", problem)
            findings.append((tool, unusable))
    findings += find_misshapen(launch.tools, launch.problems or {})
    findings += find_behaviour(launch.behaviour)
    yield from (_build_row(owner, by_tool.get(tool), tool, finding) for tool, finding in findings)
    if launch.behaviour is None:  # nobody looked a second time: what an earlier look showed stays
        for row in previous:
            now = by_tool.get(row["tool"])
            same = row["contract_digest"] == (now["contract_digest"] if now else "")
            if row["rule"] in BEHAVIOUR and same:
                yield {**row, **owner}


def _build_row(owner: Row, row: Row | None, tool: str, finding: ScanFinding) -> dict[str, Any]:
    """One row of FINDINGS. Without a contract (`row`) there is nothing to hold, and the finding is
    medium at most."""
    return {
        **owner,
        "tool": tool if row is not None else finding.tool,
        "contract_digest": row["contract_digest"] if row is not None else "",
        "rule": finding.rule,
        "severity": finding.severity if row is not None or finding.severity != HIGH else MEDIUM,
        "field": finding.field,
        "span": json.dumps(list(finding.span)),
        "excerpt": finding.excerpt,
        "why": finding.why,
    }


def limit_findings(findings: Iterable[ScanFinding]) -> list[ScanFinding]:
    """The gravest first, and of each rule and severity only the first few."""
    count: Counter[tuple[str, str]] = Counter()
    out = []
    for finding in sorted(findings, key=rank_severity, reverse=True):
        count[finding.rule, finding.severity] += 1
        if count[finding.rule, finding.severity] <= _OF_A_RULE:
            out.append(finding)
    return out
