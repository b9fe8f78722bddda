"""Laws of the tests themselves: each test claims something, and folders mirror the packages."""

import ast
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

CLAIMS = ("assert_", "check_", "expect_")  # helpers that hold asserts
EXPECTS = ("raises", "warns")  # of pytest


def functions_of(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every test function of a module, methods too."""
    for node in ast.walk(ast.parse(source)):
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, functions) and node.name.startswith("test_"):
            yield node


def has_claim(test: ast.AST) -> bool:
    """Whether a test asserts, expects an error, or calls a helper that does."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in EXPECTS or name.startswith(CLAIMS):
                return True
    return False


def test_each_test_claims_something() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{test.lineno} {test.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for test in functions_of(path.read_text(encoding="utf-8"))
        if not has_claim(test)
    ]
    assert not silent, f"no assert, no expected error, no assert_/check_/expect_ helper: {silent}"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("work()", False),
        ("assert work()", True),
        ("check_work()", True),
        ("with pytest.raises(ValueError):\n  work()", True),
        ("async def inner():\n  await work()", False),
    ],
)
def test_a_claim_is_an_assert_an_expected_error_or_a_helper_that_asserts(
    body: str, expected: bool
) -> None:
    [test] = functions_of(f"def test_x():\n {body.replace(chr(10), chr(10) + ' ')}")
    assert has_claim(test) is expected


ELSEWHERE = {"e2e", "hostile", "support"}  # of no package: whole runs, attacks, helpers


def test_folders_are_named_after_packages() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")} - ELSEWHERE
    strays = [
        name for name in folders if not any((ROOT / at / name).is_dir() for at in ("", "assets"))
    ]
    assert not strays, f"no package of that name: {strays}"
