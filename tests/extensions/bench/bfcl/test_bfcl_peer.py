"""The same verdict as BFCL's own checker, over all its AST and relevance categories.

Skipped without TOOLMILL_BFCL_PYTHON, the Python of an environment that holds `bfcl-eval`
(`scripts/bfcl_env.sh` makes one). TOOLMILL_BFCL_MUTANTS sets how many calls are made of each item
beside the golden ones (3).
"""

import os
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assets.contracts.match.match import MatchResult
from extensions.bench.bfcl_command import BfclItem, match_bfcl, read_bfcl
from tests.contracts.bfcl_mutants import golden, mutants, peer_answers
from tests.extensions.bench.bfcl.test_bfcl import TABLE

PYTHON = os.environ.get("TOOLMILL_BFCL_PYTHON", "")
MUTANTS = int(os.environ.get("TOOLMILL_BFCL_MUTANTS", "3"))
needs_peer = pytest.mark.skipif(not PYTHON, reason="TOOLMILL_BFCL_PYTHON is not set")
_FIND = "import importlib.util as u; print(u.find_spec('bfcl_eval').submodule_search_locations[0])"
Asked = tuple[BfclItem, list[dict[str, Any]]]


@cache
def items() -> list[BfclItem]:
    found = subprocess.run([PYTHON, "-c", _FIND], capture_output=True, text=True, check=True)
    return read_bfcl(Path(found.stdout.strip()) / "data")


def answers(asked: list[Asked]) -> tuple[list[Any], list[Any]]:
    """(BFCL's, ours), each as (verdict, word) or what it raises."""
    theirs, _ = peer_answers(PYTHON, [item for item, _ in asked], [(i.id, c) for i, c in asked])
    ours = [match_bfcl(i.functions, i.truth, c, category=i.category) for i, c in asked]
    return [_theirs(their) for their in theirs], [_ours(our) for our in ours]


def _theirs(answer: dict[str, Any]) -> Any:
    if "hang" in answer:
        return "hang"
    return answer["crash"] if "crash" in answer else (answer["valid"], answer["error"])


def _ours(result: MatchResult) -> Any:
    if result.error_kind in ("checker_crash", "no_function_doc"):
        return str(result.checker_error).partition(":")[0]
    word = result.checker_error
    return result.match, None if word and "relevance_error" in word else word


@needs_peer
def test_golden_calls_and_their_mutants_get_bfcls_verdict_and_word():
    random = Random(5)
    asked: list[Asked] = []
    for item in items():
        name = item.functions[0]["name"] if item.functions else "f"
        calls = golden(item, random) if item.truth else [{"name": name, "arguments": {}}]
        asked += [(item, calls), (item, [])]
        asked += [(item, mutant) for mutant in mutants(calls, item, random, MUTANTS)]
    theirs, ours = answers(asked)
    differ = [
        (item.id, calls, one, other)
        for (item, calls), one, other in zip(asked, theirs, ours, strict=True)
        if one != other
    ]
    assert not differ, differ[:3]
    assert {item.category for item, _ in asked} >= {"simple_python", "parallel", "live_irrelevance"}
    words = Counter(their if isinstance(their, str) else their[0] for their in theirs)
    assert words[True] > 3_000
    assert words[False] > 3_000


ODD_DOCS: list[Any] = [
    {"type": "dict", "properties": {"a": {"type": "number"}}, "required": []},
    {"type": "dict", "properties": {"a": {"type": ["string", "null"]}}, "required": []},
    {"type": "dict", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "required": []},
    {"type": "dict", "properties": {"a": {"type": "array"}}, "required": []},
    {"type": "dict", "properties": {"a": {"type": "array", "items": {"type": "dict"}}},
     "required": []},
    {"type": "dict", "properties": {"a": {"type": "tuple", "items": {"type": "float"}}},
     "required": ["a", "b"]},
    {"type": "dict", "properties": {"a": {"type": "dict"}}},
    {"type": "dict", "properties": {"a": {"type": "dict"}}, "required": []},
    {"type": "dict", "properties": {"a": {"type": "float"}}, "required": []},
    {"type": "dict", "properties": {"a": {"type": "any"}}, "required": []},
    {"type": "dict", "required": []},
    {"properties": [], "required": []},
    None,
]  # fmt: skip
ODD_ALLOWED: list[Any] = [
    [1], [1.0, ""], [], [""], ["a", 1], "abc", None, 7, {"a": 1}, [[1, 2]], [[]], [[{"k": ["v"]}]],
    [{"k": ["v", ""]}], [{"k": "v"}], [{"k": 1}], [{"k": {"z": 1}}], ["x.y"], [True], [None],
    [[""]],
]  # fmt: skip
ODD_VALUES: list[Any] = [
    1, 1.0, True, None, "", "A", "xy", [], [1, 2], [1.0, 2], ["a"], [{"k": "V"}], [{}], {},
    {"k": "v"}, {"k": 1}, {"z": 1}, 10**400, [[1]],
]  # fmt: skip


@needs_peer
def test_odd_docs_and_odd_truths_crash_where_bfcl_crashes():
    """4,940 single calls over docs and truths that no file of BFCL has."""
    asked: list[Asked] = []
    for d, doc in enumerate(ODD_DOCS):
        for a, allowed in enumerate(ODD_ALLOWED):
            functions = [{"name": "f", "parameters": doc}]
            item = BfclItem(f"{d}-{a}", "simple_python", [], functions, [{"f": {"a": allowed}}])
            asked += [(item, [{"name": "f", "arguments": {"a": value}}]) for value in ODD_VALUES]
    theirs, ours = answers(asked)
    assert [
        (asked[i], t, o) for i, (t, o) in enumerate(zip(theirs, ours, strict=True)) if t != o
    ] == []
    assert len({their for their in theirs if isinstance(their, str)}) >= 3


@needs_peer
def test_our_table_of_verdicts_is_bfcls():
    asked: list[Asked] = []
    for i, (word, allowed, given, more, _) in enumerate(TABLE):
        about = {"a": {"type": word, **more}}
        functions = [{"name": "f", "parameters": {"properties": about, "required": []}}]
        item = BfclItem(str(i), "simple_python", [], functions, [{"f": {"a": allowed}}])
        asked.append((item, [{"name": "f", "arguments": {"a": given}}]))
    theirs, ours = answers(asked)
    assert theirs == ours


@needs_peer
def test_shapes_no_file_has_crash_in_both():
    doc = {"name": "f", "parameters": {"properties": {}, "required": []}}
    call = {"name": "f", "arguments": {}}
    shapes: list[tuple[str, Any, Any, list]] = [
        ("simple_python", [], [{"f": {}}], [call]),
        ("simple_python", [doc], [], [call]),
        ("simple_python", [doc], [{}], [call]),
        ("simple_python", doc, [{"f": {}}], [call]),
        ("multiple", [doc], [{"g": {}}], [call]),
        ("multiple", doc, [{"g": {}}], [call]),
        ("multiple", [{}], [{"f": {}}], [call]),
        ("parallel", [doc], [{"f": {}}, {"g": {}}], [call, call]),
        ("parallel", [doc], [{"f": {}}, {}], [call, call]),
        ("parallel", [doc], [], []),
    ]  # fmt: skip
    asked = [
        (BfclItem(str(i), category, [], functions, truth), calls)
        for i, (category, functions, truth, calls) in enumerate(shapes)
    ]
    theirs, ours = answers(asked)
    assert theirs == ours
