"""Reading a folder of BFCL-format files: what is asked, the functions' docs, and the truth.

The categories judged by AST match and by (ir)relevance are read; all others (several turns,
executable calls, SQL, web search, memory) need BFCL's own machines and are skipped by name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.user_files import read_json_lines

_NAME = re.compile(r"^BFCL_v(\d+)_(\w+)\.json$")
_AST = {
    *("simple", "simple_python", "java", "simple_java", "javascript", "simple_javascript"),
    *("multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
}
_RELEVANCE = {"irrelevance", "live_irrelevance", "live_relevance", "relevance"}
TRUTHS = "possible_answer"
_EXPECTED = (
    "expected a folder with BFCL_v4_<category>.json (or v3) and possible_answer/;"
    " it comes with the PyPI package bfcl-eval, as bfcl_eval/data"
)


@dataclass(frozen=True)
class BfclItem:
    """One question: its messages, the functions' docs as they stand in the file, and per expected
    call `{name: {parameter: [allowed values]}}` ([] where the category asks only whether to call).
    """

    id: str
    category: str
    messages: list[dict[str, Any]]
    functions: list[dict[str, Any]]
    truth: list[dict[str, Any]]

    @property
    def language(self) -> str:
        """python, java or javascript: how the values of calls are written."""
        last = self.category.rpartition("_")[2]
        return last if last in ("java", "javascript") else "python"


def read_bfcl(folder: Path, skipped: list[str] | None = None) -> list[BfclItem]:
    """The items of every AST and relevance category in a folder, by category, in file order.

    skipped: a line per file that was left out, and why, is added to it. Raises UnusableInput.
    """
    left_out = [] if skipped is None else skipped
    files = _find_files(folder, left_out)
    items = [
        item for category, path in sorted(files.items()) for item in _read_items(category, path)
    ]
    seen: dict[str, str] = {}
    for item in items:
        if item.id in seen:
            where = f"{seen[item.id]} and {item.category}"
            raise UnusableInput(
                f"{folder}: id {item.id!r} stands in {where}; an id names one item: remove one"
            )
        seen[item.id] = item.category
    return items


def _find_files(folder: Path, left_out: list[str]) -> dict[str, Path]:
    """Category -> its file of the newest version."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UnusableInput(f"{folder}: {found}; {_EXPECTED}")
    newest: dict[str, tuple[int, Path]] = {}
    for path in sorted(folder.iterdir()):
        named = _NAME.match(path.name)
        if not named:
            continue
        version, category = int(named[1]), named[2]
        if category not in _AST | _RELEVANCE:
            left_out.append(f"{path.name}: {category} is not judged by AST match")
        elif category in newest and newest[category][0] > version:
            left_out.append(f"{path.name}: a newer version stands beside it")
        else:
            if category in newest:
                left_out.append(f"{newest[category][1].name}: a newer version stands beside it")
            newest[category] = version, path
    if not newest:
        inside = folder / "data"
        hint = f"; {inside} looks like it" if inside.is_dir() else ""
        raise UnusableInput(
            f"{folder}: no BFCL file that is judged by AST match; {_EXPECTED}{hint}"
        )
    return {category: path for category, (_, path) in newest.items()}


def _read_items(category: str, path: Path) -> Iterator[BfclItem]:
    rows = list(read_json_lines(path))
    truths = [[] for _ in rows] if category in _RELEVANCE else _read_truths(path, rows)
    for (line, row), truth in zip(rows, truths, strict=True):
        docs = row.get("function", row.get("functions"))
        docs = [docs] if isinstance(docs, dict) else docs
        wanted = 'expected {"id", "question", "function": [{"name", "parameters"}]}'
        if not isinstance(row.get("id"), str):
            raise UnusableInput(f"{path}, line {line}: found no text as id; {wanted}")
        if not isinstance(docs, list) or not all(isinstance(doc, dict) for doc in docs):
            raise UnusableInput(
                f"{path}, line {line} ({row['id']}): no list of functions; {wanted}"
            )
        yield BfclItem(row["id"], category, _read_messages(row.get("question")), docs, truth)


def _read_truths(path: Path, rows: list[tuple[int, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The truth of each row: by id, or by place where the file counts otherwise, as BFCL does."""
    truth_path = path.parent / TRUTHS / path.name
    if not truth_path.is_file():
        raise UnusableInput(
            f"{truth_path}: no such file; each AST category needs its truth there: copy it beside"
            f" {path.name}, or remove that"
        )
    truths = list(read_json_lines(truth_path))
    by_id = {row.get("id"): _check_truth(truth_path, line, row) for line, row in truths}
    if {row.get("id") for _, row in rows} <= by_id.keys():
        return [by_id[row.get("id")] for _, row in rows]
    if len(truths) != len(rows):
        absent = next(row.get("id") for _, row in rows if row.get("id") not in by_id)
        raise UnusableInput(
            f"{truth_path}: no truth for {absent!r} ({len(truths)} truths, {len(rows)} questions);"
            " take both files from one version of BFCL"
        )
    return [_check_truth(truth_path, line, row) for line, row in truths]


def _check_truth(path: Path, line: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    truth = row.get("ground_truth")
    truth = [truth] if isinstance(truth, dict) else truth
    if not isinstance(truth, list) or not is_truth(truth):
        raise UnusableInput(
            f"{path}, line {line}: found no ground_truth;"
            ' expected [{"function": {"parameter": [allowed values]}}]'
        )
    return truth


def is_truth(value: Any) -> bool:
    """Whether this is BFCL's form of the expected calls."""
    return isinstance(value, list) and all(
        isinstance(call, dict)
        and len(call) == 1
        and all(isinstance(allowed, dict) for allowed in call.values())
        for call in value
    )


def _read_messages(question: Any) -> list[dict[str, Any]]:
    """The messages of the first turn, in any version's form."""
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    while isinstance(question, list) and question and isinstance(question[0], list):
        question = question[0]
    return [one for one in question if isinstance(one, dict)] if isinstance(question, list) else []
