"""Names: classes are noun phrases of the field, and variables say what they hold."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from tests.test_layout import modules

# Words that say nothing of what a variable holds.
FILLERS = {
    *("one", "found", "made", "held", "told", "kept", "known", "shown", "said", "seen", "own"),
    *("rest", "parts", "given", "wanted", "asked", "taken", "named", "listed", "left"),
}
# Past participles that stand alone as a class name: what is `Looked`?
PARTICIPLE = re.compile(
    r"_*(?:[A-Z][a-z]*ed|Known|Given|Made|Held|Kept|Told|Read|Written|Shown|Chosen|Drawn|Found|Lost"
    r"|Sent|Spent|Built|Seen|Said|Taken|Left|Done|Gone|Begun|Broken|Hidden)"
)
MOST_ONE_WORD = 0.05  # of the classes
MOST_FILLERS = 0.02  # of the name bindings


@cache
def trees() -> dict[str, ast.Module]:
    """Module name -> its syntax tree."""
    return {name: ast.parse(path.read_text("utf-8")) for name, path in modules().items()}


def list_classes() -> Iterator[tuple[str, str]]:
    """(module, name) of every class."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield module, node.name


def list_bindings(tree: ast.AST) -> Iterator[str]:
    """Every name that an assignment, a loop or a parameter binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def count_words(name: str) -> int:
    return len(re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z0-9]*", name))


def test_classes_are_named_by_noun_phrases() -> None:
    names = [name for _, name in list_classes()]
    short = [name for name in names if count_words(name) == 1]
    assert len(short) <= MOST_ONE_WORD * len(names), f"say more than one word: {sorted(short)}"


def test_no_class_is_named_by_a_participle_alone() -> None:
    wrong = [f"{module}.{name}" for module, name in list_classes() if PARTICIPLE.fullmatch(name)]
    assert not wrong, f"name what it is, not what was done: {wrong}"


def test_no_two_classes_of_a_package_share_a_name() -> None:
    seen = Counter((module.rpartition(".")[0], name) for module, name in list_classes())
    assert not [pair for pair, count in seen.items() if count > 1]


def test_variables_say_what_they_hold() -> None:
    names = [name for tree in trees().values() for name in list_bindings(tree)]
    fillers = Counter(name for name in names if name in FILLERS)
    assert sum(fillers.values()) <= MOST_FILLERS * len(names), fillers.most_common()


@pytest.mark.parametrize(
    ("name", "words"), [("Launch", 1), ("LaunchRecipe", 2), ("HTTPServer", 2), ("_Part", 1)]
)
def test_words_of_a_name_are_counted_by_their_capitals(name: str, words: int) -> None:
    assert count_words(name) == words
