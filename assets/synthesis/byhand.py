"""`toolmill verify` and `toolmill judge`: files in, one verdict per row out.

What belongs here: reading the rows and servers a person hands in, in the corpus's form.
What does not: the rules (`verify.py`), the rubric (`rubric.py`).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, contract
from assets.synthesis.rubric import rule_judgement
from assets.synthesis.verify import verify

Json = Any


class UnreadableInput(ValueError):
    """A file that is not what the command takes: the message names file, line and mend."""


def verify_file(pairs: Path, tools: Path, *, judge: bool = False) -> Iterator[dict[str, Json]]:
    """One verdict per row of `pairs`, in order: {tool_id, verdict, flaws, reasons[, score, judge]}.

    `pairs`: JSON Lines with tool_id ("server::tool"), instruction, arguments; other fields are
    ignored. `tools`: JSON Lines of servers with qualified_name and tools (as in `tools/list`).
    With `judge`, rows that the rules do not reject get the offline rubric's score too.
    Raises UnreadableInput; a row about an unknown tool is a verdict (`reject`, `unknown_tool`).
    """
    contracts = read_tools(tools)
    for number, row in _lines(pairs):
        missing = {"tool_id", "instruction", "arguments"} - row.keys()
        if missing:
            found = f"{pairs}, line {number}: no {', '.join(sorted(missing))}"
            raise UnreadableInput(f"{found}; expected tool_id, instruction and arguments")
        yield _verdict(row, contracts, judge)


def _verdict(
    row: Mapping[str, Json], contracts: Mapping[str, dict[str, Json]], judge: bool
) -> dict[str, Json]:
    tool_id, instruction = str(row["tool_id"]), str(row["instruction"])
    found = contracts.get(tool_id)
    if found is None:
        reason = f"{tool_id} is not among the tools"
        return {
            "tool_id": tool_id,
            "verdict": "reject",
            "flaws": ["unknown_tool"],
            "reasons": [reason],
        }
    server = tool_id.rsplit("::", 1)[0]
    result = verify(found, instruction, row["arguments"], server=server)
    reasons = [f"{f.kind} at {f.path or 'the text'}: {f.reason}" for f in result.findings]
    verdict: dict[str, Json] = {
        "tool_id": tool_id,
        "verdict": result.verdict,
        "flaws": result.kinds,
        "reasons": reasons,
    }
    if judge:
        meta = {"contract": found, "instruction": instruction, "arguments": row["arguments"]}
        opinion = rule_judgement({**meta, "server": server}, 0)
        verdict |= {"score": opinion["score"], "judge": "offline:rules"}
    return verdict


def read_tools(path: Path) -> dict[str, dict[str, Json]]:
    """ "server::tool" -> contract, for every tool of a servers file that has a usable contract."""
    found: dict[str, dict[str, Json]] = {}
    for _, server in _lines(path):
        name = str(server.get("qualified_name") or server.get("server_id") or server.get("name"))
        for tool in server.get("tools") or []:
            try:
                schema = tool.get("inputSchema") or {"type": "object"}
                found[f"{name}::{tool['name']}"] = contract({**tool, "inputSchema": schema})
            except (ContractError, KeyError, AttributeError, TypeError):
                continue  # its rows are answered with unknown_tool
    return found


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Json]]]:
    try:
        handle = path.open(encoding="utf-8")
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}; expected a JSON Lines file") from error
    with handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise UnreadableInput(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(value, dict):
                raise UnreadableInput(f"{path}, line {number}: expected a JSON object")
            yield number, value
