"""The command `judge`: pairs and servers in files, one verdict per pair, in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np

from assets.contracts.canonical import (
    ContractError,
    canonicalize_contract,
    contract_digest,
    tool_text,
)
from assets.contracts.tool_id import ToolId
from assets.synthesis.judging.judge import judge
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import GoldenCall, make_single_row
from assets.synthesis.verify.filters import compute_cosines, find_nearer_siblings, make_echo_finding
from assets.synthesis.verify.pair_checks import PairFinding
from assets.synthesis.verify.rules import decide, verify
from assets.vectors.encoders.embedder import Encode
from warehouse.errors import UnusableInput
from warehouse.item_failure import tell_failure
from warehouse.json_types import Contract, Json, JsonObject, Row
from warehouse.llm.client import LLM
from warehouse.user_files import read_json_lines

_FIELDS = ("tool_id", "instruction", "arguments")
_ALL_FIELDS = "tool_id, instruction and arguments"


@dataclass(frozen=True)
class CandidatePair:
    """One row as it was handed in. Labels beside these fields were never read."""

    tool_id: str
    instruction: str
    arguments: Json

    @property
    def server(self) -> str:
        return ToolId.parse(self.tool_id).server_id

    @property
    def tool(self) -> str:
        return ToolId.parse(self.tool_id).tool


@dataclass
class ToolsFile:
    """The tools of a servers file, by tool id."""

    by_id: dict[str, dict[str, Json]] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)  # and why
    digests: dict[str, str] = field(default_factory=dict)
    contracts: dict[str, dict[str, Json]] = field(default_factory=dict)  # by digest
    repeated: set[str] = field(default_factory=set)  # ids that stand more than once
    _servers: dict[str, list[str]] = field(default_factory=dict)

    def list_server_tools(self, server: str) -> list[str]:
        """The ids of a server's tools, in the order of the file."""
        return self._servers.get(server, [])

    def add(self, server: str, tool: Contract, keep: Set[str] = frozenset()) -> None:
        """Adds a tool; a later one of the same id replaces it, except those in `keep`."""
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if not isinstance(name, str):
            return
        key = str(ToolId(server, name))
        if key in keep:
            return
        try:
            schema = tool.get("inputSchema") or {"type": "object"}
            contract = canonicalize_contract({**tool, "inputSchema": schema})
            digest = contract_digest({**tool, "inputSchema": schema})
        except (ContractError, KeyError, AttributeError, TypeError, ValueError) as error:
            self.unusable[key] = f"{key[:200]} has no usable contract ({str(error)[:120]})"
            return
        if key in self.by_id:
            self.repeated.add(key)
        else:
            self._servers.setdefault(server, []).append(key)
        self.by_id[key], self.digests[key], self.contracts[digest] = contract, digest, contract


def read_rows(path: Path) -> list[CandidatePair]:
    """The rows of a JSON Lines file. Raises UnusableInput; labels are never read."""
    pairs = [_parse_row(path, number, row) for number, row in read_lines(path)]
    if not pairs:
        raise UnusableInput(f"{path}: no rows; expected a JSON object a line with {_ALL_FIELDS}")
    return pairs


def read_tools(path: Path) -> ToolsFile:
    """The tools of a JSON Lines file of servers; one with an unusable contract is kept by name.
    Raises UnusableInput where no tool is found."""
    tools = ToolsFile()
    for _, server in read_lines(path):
        server_tools = server.get("tools")
        for tool in server_tools if isinstance(server_tools, list) else []:
            tools.add(get_server_name(server), tool)
    if not tools.by_id and not tools.unusable:
        shape = '{"qualified_name": "…", "tools": [{"name": "…", "inputSchema": {…}}]}'
        raise UnusableInput(f"{path}: no tools found; expected a server a line as {shape}")
    return tools


def get_server_name(server: JsonObject) -> str:
    """How a record of a servers file names its server; "" where it does not."""
    names = (server[k] for k in ("qualified_name", "server_id", "name") if server.get(k))
    return str(next(names, ""))


def _parse_row(path: Path, number: int, row: Row) -> CandidatePair:
    where = f"{path}, line {number}"
    if missing := [name for name in _FIELDS if name not in row]:
        raise UnusableInput(f"{where}: no {', '.join(missing)}; expected {_ALL_FIELDS}")
    for name in ("tool_id", "instruction"):
        if not isinstance(row[name], str):
            kind = type(row[name]).__name__
            raise UnusableInput(f"{where}: {name} is {kind}, expected a text")
    return CandidatePair(row["tool_id"], row["instruction"], row["arguments"])


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    """(line number, object) of a JSON Lines file. Raises UnusableInput."""
    return read_json_lines(path, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


Embed = Callable[[Sequence[str]], np.ndarray]
_BESIDE = 12  # tools of the same server that the judge is shown


def verify_rows(
    rows: Sequence[CandidatePair],
    tools: ToolsFile,
    embed: Embed,
    policy: SynthesisPolicy,
    find: Encode | None = None,
) -> list[dict[str, Json]]:
    """{tool_id, verdict, flaws, score: None, reasons} per row, by rules alone; a row about an
    unknown or unusable tool is rejected. find: embeds by a model that was trained to find tools."""
    findings_by_row = [_find_flaws(row, tools) for row in rows]
    open_to_copying = [
        at for at, findings in enumerate(findings_by_row) if not any(f.certain for f in findings)
    ]
    texts = [
        (rows[at].instruction, str(tools.by_id[rows[at].tool_id].get("description") or ""))
        for at in open_to_copying
    ]
    for at, cosine in zip(open_to_copying, compute_cosines(texts, embed), strict=True):
        if echo := make_echo_finding(cosine, policy.copies_above):
            findings_by_row[at].append(echo)
    questions = [
        (rows[at].instruction, _list_tool_texts(rows[at], tools)) for at in open_to_copying
    ]
    nearer = find_nearer_siblings(questions, find, policy) if find else []
    for at, sibling in zip(open_to_copying, nearer, strict=False):
        if sibling:
            findings_by_row[at].append(sibling)
    return [
        _make_verdict(row, findings) for row, findings in zip(rows, findings_by_row, strict=True)
    ]


def _list_tool_texts(row: CandidatePair, tools: ToolsFile) -> list[str]:
    """The texts of its server's tools, its own first."""
    others = [key for key in tools.list_server_tools(row.server) if key != row.tool_id]
    return [tool_text(tools.by_id[key]) for key in (row.tool_id, *others)]


def judge_rows(
    rows: Sequence[CandidatePair],
    tools: ToolsFile,
    embed: Embed,
    llm: LLM,
    policy: SynthesisPolicy,
    find: Encode | None = None,
) -> list[dict[str, Json]]:
    """As `verify_rows`, with the judge's score, verdict and reasons for what the rules left open; a
    row without a usable answer stays `unsure`."""
    results = verify_rows(rows, tools, embed, policy, find)
    pair_rows = [
        _make_pair_row(at, row, result["verdict"], tools)
        for at, (row, result) in enumerate(zip(rows, results, strict=True))
        if result["verdict"] != "reject"
    ]
    for judgement in judge(pair_rows, tools.contracts, llm, policy):
        result = results[int(judgement["pair_id"])]
        result["judge"] = judgement["judge"]
        if judgement["status"] == "ok":
            result |= {"verdict": judgement["verdict"], "score": judgement["score"]}
            result["reasons"].append(judgement["reasons"])
        else:
            result["verdict"] = "unsure"
            why = tell_failure(judgement["error_kind"], judgement["hint"])
            result["reasons"].append(f"not judged: {why}")
    return results


def _find_flaws(row: CandidatePair, tools: ToolsFile) -> list[PairFinding]:
    contract = tools.by_id.get(row.tool_id)
    if contract is None:
        kind = "unusable_tool" if row.tool_id in tools.unusable else "unknown_tool"
        reason = tools.unusable.get(row.tool_id) or f"{row.tool_id[:200]} is not among the tools"
        return [PairFinding(kind, "tool_id", reason)]
    return list(verify(contract, row.instruction, row.arguments, server=row.server).findings)


def _make_verdict(row: CandidatePair, findings: Sequence[PairFinding]) -> dict[str, Json]:
    decision = decide(findings)
    return {
        "tool_id": row.tool_id,
        "verdict": decision.verdict,
        "flaws": decision.kinds,
        "score": None,
        "reasons": [f"{f.kind} at {f.path or 'the text'}: {f.reason}" for f in findings],
    }


def _make_pair_row(at: int, row: CandidatePair, verdict: str, tools: ToolsFile) -> dict[str, Json]:
    digest = tools.digests[row.tool_id]
    beside = [tools.digests[other] for other in tools.list_server_tools(row.server)][: _BESIDE + 1]
    call = GoldenCall(row.server, row.tool, digest, dict(row.arguments))
    pair_row = make_single_row(call, row.instruction, beside)
    return {**pair_row, "pair_id": str(at), "verdict": verdict}
