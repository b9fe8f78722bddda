"""Functions are named verb + noun, so that a reader guesses a function's job without opening it."""

import ast
from functools import cache
from pathlib import Path

from tests.test_layout import modules

HERE = Path(__file__).parent
VERBS = frozenset((HERE / "names_verbs.txt").read_text().split())
# Nouns that are the field's own word for what is returned. A new one needs a better reason than
# that it was quicker: prefer find_, list_, make_, read_ or count_.
NOUNS = frozenset((HERE / "names_nouns.txt").read_text().split())
# What Dagster and the command line call a function by is an asset's or a command's name.
NAMED_BY_OTHERS = ("asset", "command", "schedule", "sensor", "callback")


@cache
def functions() -> list[tuple[str, str]]:
    """(module, name without underscores) of every function at the top of a module."""
    found = []
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name == "main":
                continue
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if not any(word in decorators for word in NAMED_BY_OTHERS):
                found.append((module, node.name.strip("_")))
    return found


def test_functions_begin_with_a_verb() -> None:
    wrong = [
        f"{module}.{name}"
        for module, name in functions()
        if name.split("_")[0] not in VERBS and name not in NOUNS
    ]
    assert not wrong, "name these verb + noun: " + ", ".join(wrong)


def test_the_list_of_nouns_does_not_outlive_its_functions() -> None:
    names = {name for _, name in functions()}
    assert names >= NOUNS, f"no function is called {sorted(NOUNS - names)} any more"
