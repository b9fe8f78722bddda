"""The layout as laws: one-way imports inside every folder, small folders, modules and functions."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDERS = ("warehouse", "assets", "serving", "training", "demo", "orchestration", "extensions")
LARGEST = 25  # modules of a folder
LONGEST = 80  # lines of a function, its signature and docstring among them
LONGEST_MODULE = 500  # lines


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of ours."""
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files
        if "bundles" not in path.parts
    }


@cache
def imports(name: str) -> frozenset[str]:
    """The modules of ours that one module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else node.module)
    return frozenset(found & set(modules()))


def packages() -> list[str]:
    return sorted({name.rpartition(".")[0] for name in modules() if "." in name} | set(FOLDERS))


def graph(package: str) -> dict[str, set[str]]:
    """Child of the package -> children it imports. Asset definitions wire siblings together, so
    `defs` modules do not count."""
    edges: dict[str, set[str]] = defaultdict(set)
    inside = f"{package}."
    for name in modules():
        if not name.startswith(inside) or name.endswith(".defs"):
            continue
        child = name[len(inside) :].split(".")[0]
        for target in imports(name):
            if target.startswith(inside):
                edges[child].add(target[len(inside) :].split(".")[0])
        edges[child].discard(child)
    return edges


@pytest.mark.parametrize("package", [name for name in packages() if name != "extensions"])
def test_imports_go_one_way_inside_every_folder(package: str) -> None:
    edges, done = graph(package), set()

    def visit(child: str, trail: tuple[str, ...]) -> None:
        assert child not in trail, f"{package}: {' -> '.join([*trail, child])}"
        if child not in done:
            for target in sorted(edges.get(child, ())):
                visit(target, (*trail, child))
            done.add(child)

    for child in sorted(edges):
        visit(child, ())


def test_folders_stay_small() -> None:
    held: dict[str, int] = defaultdict(int)
    for path in modules().values():
        if path.name != "__init__.py":
            held[str(path.parent.relative_to(ROOT))] += 1
    large = {name: count for name, count in held.items() if count > LARGEST}
    assert not large, f"split these by what they hold: {large}"


def test_modules_have_one_subject() -> None:
    lines = {name: path.read_text("utf-8").count("\n") for name, path in modules().items()}
    long = {name: count for name, count in lines.items() if count > LONGEST_MODULE}
    assert not long, f"more than {LONGEST_MODULE} lines; split these by subject: {long}"


def test_functions_fit_a_screen() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST
    ]
    assert not long, f"more than {LONGEST} lines; split these by what they do: {long}"


POINTER = re.compile(r"`([\w./-]+\.(?:py|md|json|sql|html|js|yaml|toml))`")
# Files that a user's home, a package of somebody else or an output folder holds, not this tree.
ELSEWHERE = {
    *("HEAD.json", "HEADS.jsonl", "toolmill.toml", "pyproject.toml", "home.json", "recipe.json"),
    *("package.json", "server.json", "server.yaml", "server.py", "manifest.json", "catalog.json"),
    *("mcp.json", "mcpServers.json", "config.json", "adapter_config.json", "tokenizer.json"),
    *("requirements.txt", "card.json", "job.json", "index.json", "release.json", "encoder.json"),
    *("summary.json", "report.md", "history.json"),
}


def tree() -> list[Path]:
    """Every file of the checkout that a docstring may name."""
    folders = [ROOT / name for name in (*FOLDERS, "docs", "tests", "benchmarks", "scripts")]
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def pointers(path: Path) -> list[str]:
    """The files of ours that a module's docstrings name in backticks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return [found for text in texts for found in POINTER.findall(text)]


def test_docstrings_point_at_files_that_exist() -> None:
    names = [str(path.relative_to(ROOT)) for path in tree()]
    broken = [
        f"{path.relative_to(ROOT)}: {pointer}"
        for path in modules().values()
        for pointer in pointers(path)
        if Path(pointer).name not in ELSEWHERE
        and not any(f"/{name}".endswith(f"/{pointer}") for name in names)
    ]
    assert not broken, "\n".join(broken)
