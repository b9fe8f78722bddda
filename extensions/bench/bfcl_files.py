"""Reading a folder of BFCL-format files: what is asked, the functions' docs, and the truth.

The categories of Python calls judged by AST match and by (ir)relevance are read. All others are
skipped by name: Java and JavaScript calls, whose values are source text, and those that need BFCL's
own machines (several turns, executable calls, SQL, web search, memory).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from assets.contracts.match.match import MatchResult
from extensions.bench.bfcl_values import check_value
from warehouse.errors import UnusableInput
from warehouse.user_files import read_json_lines

Call = Mapping[str, Any]
_RAISES = (
    *(LookupError, TypeError, AttributeError, ValueError, ArithmeticError),
    *(NotImplementedError, RecursionError),
)


class _NoDoc(TypeError):
    """The expected function is not among the docs; the checker raises a TypeError there."""


def match_bfcl(
    functions: Sequence[Any],
    truth: Sequence[Any],
    calls: Sequence[Any],
    *,
    category: str | None = None,
) -> MatchResult:
    """BFCL's verdict on calls `{"name", "arguments"}`.

    functions: its docs `{"name", "parameters"}`. truth: per expected call `{name: {parameter: [its
    allowed values]}}`. category: BFCL's, which says what is asked ("parallel" or "multiple" in it;
    "irrelevance" and "relevance" need no truth); without one the counts of truth and docs tell.
    """
    shape = "multiple" if len(functions) > 1 else "simple"
    category = category or (shape if len(truth) == 1 else "parallel")
    made = _decode_calls(calls)
    if "relevance" in category:
        return _judge_relevance(made, "irrelevance" in category)
    if made is None:
        return MatchResult(
            False, "not_an_object", tool=False, checker_error="decoder_wrong_output_format"
        )
    try:
        if "parallel" in category:
            return _match_parallel_calls(functions, made, truth)
        if "multiple" in category:
            if len(made) != len(truth):
                return _judge_count("multiple_function_checker", made, truth)
            doc = _find_doc(functions, _take_first(truth[0]))
            return _match_one_call(doc, made[0], truth[0])
        if len(made) != 1:
            return _judge_count("simple_function_checker", made, truth)
        return _match_one_call(functions[0], made[0], truth[0])
    except _RAISES as error:
        crashed = ("checker_crash", type(error).__name__)
        kind, raised = ("no_function_doc", "TypeError") if isinstance(error, _NoDoc) else crashed
        return MatchResult(False, kind, tool=False, checker_error=f"{raised}: {error}"[:120])


def _decode_calls(calls: Any) -> list[tuple[Any, dict[str, Any]]] | None:
    """(name, arguments) of each call; None where one has no such form."""
    if not isinstance(calls, list | tuple):
        return None
    results = []
    for call in calls:
        if not isinstance(call, dict):
            return None
        name, given = call.get("name"), call.get("arguments")
        given = {} if given is None else given
        if not isinstance(name, str) or not isinstance(given, dict):
            return None
        results.append((name, given))
    return results


def _judge_relevance(made: Any, irrelevance: bool) -> MatchResult:
    """Anything that is no list of calls counts as no call at all."""
    if bool(made) is not irrelevance:
        return MatchResult(True, None)
    if irrelevance:
        word = "irrelevance_error:decoder_success"
        return MatchResult(False, "unwanted_call", tool=False, checker_error=word)
    word = "relevance_error:decoder_failed"
    return MatchResult(False, "no_call", tool=False, checker_error=word)


def _judge_count(checker: str, made: Sequence[Any], truth: Sequence[Any]) -> MatchResult:
    few = "too_few_calls" if made else "no_call"
    kind = few if len(made) < max(len(truth), 1) else "too_many_calls"
    return MatchResult(False, kind, tool=False, checker_error=f"{checker}:wrong_count")


def _find_doc(functions: Any, name: str) -> Any:
    if not isinstance(functions, list):
        return functions
    result = next((doc for doc in functions if doc["name"] == name), None)
    if result is None:
        raise _NoDoc
    return result


def _take_first(values: Any) -> Any:
    for value in values:
        return value
    raise IndexError("an expected call that names no function")


def _match_parallel_calls(functions: Any, made: Sequence[Any], truth: Sequence[Any]) -> MatchResult:
    """Each expected call takes the first call still free that fulfils it."""
    checker = "parallel_function_checker_no_order"
    if len(made) != len(truth):
        return _judge_count(checker, made, truth)
    free = list(range(len(made)))
    for expected in truth:
        doc = _find_doc(functions, _take_first(expected))
        results: list[MatchResult] = []
        for place in free:
            results.append(_match_one_call(doc, made[place], expected))
            if results[-1].match:
                free.remove(place)
                break
        else:
            return _describe_unmatched(results, checker)
    return MatchResult(True, None)


def _describe_unmatched(results: Sequence[MatchResult], checker: str) -> MatchResult:
    """The error of the call that came nearest."""
    nearest = max(results, key=lambda result: (result.tool, result.value_counts()[0]))
    word = f"{checker}:cannot_find_match"
    return MatchResult(False, nearest.error_kind, nearest.per_parameter, nearest.tool, word)


def _match_one_call(doc: Any, made: tuple[str, dict[str, Any]], truth: Any) -> MatchResult:
    allowed = _take_first(truth.values())
    known, required = doc["parameters"]["properties"], doc["parameters"]["required"]
    name, given = made
    if doc["name"] != name:
        return _build_result("wrong_tool", "wrong_func_name", {}, tool=False)
    verdicts = dict.fromkeys(given, "unchecked")
    for parameter in required:
        if parameter not in given:
            verdicts[str(parameter)] = "missing"
            return _build_result("missing_parameter", "missing_required", verdicts)
    for parameter, value in given.items():
        if parameter not in known or parameter not in allowed:
            verdicts[parameter] = "extra"
            return _build_result("extra_parameter", "unexpected_param", verdicts)
        word = check_value(known[parameter], value, allowed[parameter])
        if word:
            kind = "wrong_type" if word.startswith("type_error") else "wrong_value"
            return MatchResult(False, kind, {**verdicts, parameter: kind}, checker_error=word)
        verdicts[parameter] = "match"
    for parameter in allowed:
        if parameter not in given and "" not in allowed[parameter]:
            verdicts[parameter] = "missing"
            return _build_result("missing_parameter", "missing_optional", verdicts)
    return MatchResult(True, None, verdicts)


def _build_result(kind: str, word: str, verdicts: dict[str, str], tool: bool = True) -> MatchResult:
    return MatchResult(False, kind, verdicts, tool, f"simple_function_checker:{word}")


_NAME = re.compile(r"^BFCL_v(\d{1,4})_(\w+)\.json$")
VERSIONS = (3, 4)
_AST = {
    *("simple", "simple_python", "multiple", "parallel", "parallel_multiple"),
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
        match = _NAME.match(path.name)
        if not match:
            continue
        version, category = int(match[1]), match[2]
        if version not in VERSIONS:
            left_out.append(f"{path.name}: version {version} is not read; expected BFCL v3 or v4")
        elif category not in _AST | _RELEVANCE:
            left_out.append(f"{path.name}: {category} is not judged by AST match of Python calls")
        elif category in newest and newest[category][0] > version:
            left_out.append(f"{path.name}: a newer version stands beside it")
        else:
            if category in newest:
                left_out.append(f"{newest[category][1].name}: a newer version stands beside it")
            newest[category] = version, path
    if not newest:
        inside = folder / "data"
        hint = f"; {inside} looks like it" if inside.is_dir() else ""
        seen = f" ({left_out[0]})" if left_out else ""
        raise UnusableInput(
            f"{folder}: no BFCL file that is judged by AST match{seen}; {_EXPECTED}{hint}"
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
    if not is_truth(truth):
        raise UnusableInput(
            f"{path}, line {line}: found no ground_truth;"
            ' expected [{"function": {"parameter": [allowed values]}}]'
        )
    return truth


def is_truth(value: Any) -> TypeGuard[list[dict[str, Any]]]:
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
    listed = question if isinstance(question, list) else []
    return [item for item in listed if isinstance(item, dict)]
