"""The laws that lint alone cannot hold: where imports go, how large things are and what they are
called, and that each test claims something."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.pattern_work import list_patterns

PACKAGES = ("warehouse", "assets", "serving", "training", "orchestration", "demo", "extensions")
CORE = set(PACKAGES) - {"extensions"}
# What a package may import of ours, besides itself.
ALLOWED = {
    "warehouse": set(),
    "assets": {"warehouse"},
    "training": {"warehouse", "assets", "serving"},
    "serving": {"warehouse", "assets"},
    "demo": {"warehouse"},
    "orchestration": {"warehouse", "assets", "serving", "training", "demo"},
    "extensions": CORE,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LARGEST = 25  # modules of a folder
LONGEST = 80  # lines of a function, its signature and docstring among them
LONGEST_MODULE = 500  # lines


@cache
def files() -> dict[Path, str]:
    """File below the root -> its text, of every module of ours."""
    paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return {
        path.relative_to(ROOT): path.read_text("utf-8")
        for path in paths
        if "bundles" not in path.parts
    }


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(files()[path])


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a module; to walk each tree once is half of the time of all laws."""
    return list(ast.walk(parse(path)))


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file."""
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files()
    }


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules that one imports anywhere in it, of ours by their whole name."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in modules() else node.module for name in inner}
    return frozenset(names)


def find_roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def test_dagster_stays_at_the_doors():
    allowed = {"assets/partitions.py", "warehouse/publish.py"}
    for path in files():
        if path.name == "defs.py" or str(path) in allowed or "orchestration" in path.parts:
            continue
        if path.is_relative_to("extensions/upkeep"):
            continue  # upkeep reads and edits Dagster's own records
        assert not find_roots(path) & {"dagster", "dagster_ray"}, path


def test_imports_go_one_way():
    for path in files():
        package = path.parts[0]
        # The last has a law of its own, below.
        wrong = find_roots(path) & set(PACKAGES) - {package} - ALLOWED[package] - {"extensions"}
        assert not wrong, f"{path} imports {sorted(wrong)}"


def find_cycle(edges: dict[str, set[str]]) -> str:
    """One way round in a graph, "" where there is none."""
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> str:
        if name in trail:
            return " -> ".join([*trail, name])
        if name in done:
            return ""
        done.add(name)
        return next(
            filter(None, (visit(target, (*trail, name)) for target in sorted(edges[name]))), ""
        )

    return next(filter(None, (visit(name, ()) for name in sorted(edges))), "")


def test_no_import_cycle_and_one_would_be_found():
    ours = modules().keys()
    assert not find_cycle({name: {*imported(path)} & ours for name, path in modules().items()})
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == ""
    assert find_cycle({"a": {"b", "d"}, "b": {"d"}, "c": {"b"}, "d": {"b"}}) == "a -> b -> d -> b"


FOLDERS = {name.rpartition(".")[0] for name in modules() if "." in name} | set(PACKAGES)


@pytest.mark.parametrize("package", sorted(FOLDERS - {"extensions"}))
def test_imports_go_one_way_inside_every_folder(package):
    """Asset definitions wire siblings together, so `defs` modules do not count."""
    edges: dict[str, set[str]] = defaultdict(set)
    inside = f"{package}."
    for name, path in modules().items():
        if name.startswith(inside) and not name.endswith(".defs"):
            child, *_ = name.removeprefix(inside).split(".")
            targets = {of for of in imported(path) & modules().keys() if of.startswith(inside)}
            edges[child] |= {of.removeprefix(inside).split(".")[0] for of in targets} - {child}
    assert not find_cycle(defaultdict(set, edges))


# Who reads snapshots although everything downstream is made of clear contracts.
READS_SNAPSHOTS = {
    "assets/catalogue/defs.py",  # counts the tools that a server lists, held or not
    "assets/synthesis/export/selection.py",  # contracts as of a past day; what is held is asked now
    "assets/synthesis/export/write.py",  # names the versions an export of a past day was made from
    "assets/synthesis/old_contracts.py",  # contracts that are no longer listed
    "extensions/upkeep/takedowns.py",  # what a take-down reaches was listed once, held or not
    "extensions/upkeep/home_tables.py",  # names every table that a home may hold
    "orchestration/runs/summary.py",  # counts the tools that were listed, held or not
}


def test_downstream_reads_clear_contracts_and_no_snapshots():
    result = {
        str(path)
        for path, text in files().items()
        if "contracts" not in path.parts and "SNAPSHOTS" in text
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and any(of.name == "SNAPSHOTS" for of in node.names)
    }
    assert result == READS_SNAPSHOTS


def test_serving_imports_neither_dagster_nor_torch():
    for path in files():
        if path.parts[0] == "serving":
            assert not find_roots(path) & {"dagster", "torch", "transformers", "peft"}, path


def test_every_module_says_what_belongs_there():
    for path, text in files().items():
        assert not text.strip() or ast.get_docstring(parse(path)), path


def test_the_core_imports_no_extension_and_no_extension_another():
    for path in files():
        own = path.parts[:2] if path.parts[0] == "extensions" and len(path.parts) > 2 else ()
        names = [tuple(name.split(".")[:2]) for name in imported(path)]
        assert not [name for name in names if name[0] == "extensions" and name != own], path


# Packages that read third-party text. A pattern of Python's `re` there is bounded in its work at
# every start, as far as can be read off it, or its module is in the list with what bounds it.
THIRD_PARTY = (
    *("warehouse", "serving", "assets/marketplaces", "assets/servers", "assets/contracts"),
    *("assets/catalogue", "assets/outcomes", "assets/synthesis"),
)
UNBOUNDED_PATTERNS = {
    "assets/catalogue/categories.py": "one start of each run of characters",
    "assets/contracts/match/read_call.py": "each alternative is anchored or one character",
    "assets/contracts/repair/values.py": "a word or literal before each run of white space",
    "assets/contracts/scan/hidden_text.py": "bounded repeats; Unicode properties RE2 does not have",
    "assets/contracts/scan/tool_texts.py": "repeats that end where their characters do",
    "assets/contracts/scan/word_rules.py": "bounded repeats of distinct characters",
    "assets/contracts/schema_shapes.py": "patterns of schemas, with a time limit",
    "assets/contracts/validate.py": "patterns of schemas, with a time limit",
    "assets/contracts/tool_id.py": "a literal before the repeat; globs of the user's settings",
    "assets/marketplaces/adapters/private.py": "words of the user's own files",
    "assets/marketplaces/adapters/client_config.py": "those of PyYAML, over the user's own files",
    "assets/marketplaces/launch/js_literal.py": "one possessive token at each place",
    "assets/marketplaces/launch/page_facts.py": "one possessive token at each place",
    "assets/marketplaces/normalise.py": "single characters; Unicode properties RE2 does not have",
    "assets/marketplaces/server_json/document.py": "words of at most 2,000 characters",
    "assets/marketplaces/server_json/inputs.py": "one start of each run; arguments are capped",
    "assets/servers/sandbox/process.py": "our own paths",
    "assets/synthesis/export/selection.py": "licences of at most 120 characters",
    "assets/synthesis/judging/mutants.py": "one value as a literal, and optional quotes",
    "assets/synthesis/offline/invented_values.py": "texts of at most 1,000 characters",
    "assets/synthesis/offline/sentences.py": "phrases of at most 400 characters",
    "assets/synthesis/verify/grading.py": "values of at most 400 characters; bounded repeats",
    "assets/synthesis/verify/numbers.py": "bounded repeats at one start",
    "assets/synthesis/verify/pair_checks.py": "a literal before each run; bounded repeats",
    "assets/synthesis/verify/times.py": "words of units, and bounded repeats",
    "serving/discovery/request.py": "windows of at most LONGEST_BODY characters",
    "serving/repair/evidence.py": "at most 20,000 characters; possessive or bounded repeats",
    "warehouse/network/egress.py": "addresses in the user's own settings",
    "warehouse/sanitize/credential_patterns.py": "possessive repeats behind a literal",
    "warehouse/sanitize/redact.py": "bounded repeats at one start",
    "warehouse/sanitize/scrubber.py": "bounded repeats; values of secrets, which are ours",
    "warehouse/sanitize/secret_names.py": "names of at most 80 characters",
    "warehouse/sanitize/untrusted_text.py": "single characters, and words that always match",
}


def test_patterns_over_third_party_text_are_bounded_or_of_re2():
    unbounded = {
        str(path.relative_to(ROOT))
        for folder in THIRD_PARTY
        for path in (ROOT / folder).rglob("*.py")
        if any(pattern.unbounded for pattern in list_patterns(path))
    }
    assert unbounded == set(UNBOUNDED_PATTERNS)


def test_folders_modules_and_functions_stay_small():
    counts = Counter(path.parent for path in files() if path.name != "__init__.py")
    large = {str(folder): count for folder, count in counts.items() if count > LARGEST}
    assert not large, f"split these by what they hold: {large}"
    lines = {str(path): text.count("\n") for path, text in files().items()}
    long = {name: count for name, count in lines.items() if count > LONGEST_MODULE}
    assert not long, f"more than {LONGEST_MODULE} lines; split these by subject: {long}"
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path in files()
        for node in nodes(path)
        if isinstance(node, FUNCTIONS) and (node.end_lineno or 0) - node.lineno >= LONGEST
    ]
    assert not long, f"more than {LONGEST} lines; split these by what they do: {long}"


POINTER = re.compile(r"`([\w./-]+\.(?:py|md|json|sql|html|js|yaml|toml))`")
# Files that a user's home, a package of somebody else or an output folder holds, not this tree.
OF_OTHERS = {
    *("HEAD.json", "HEADS.jsonl", "toolmill.toml", "pyproject.toml", "home.json", "recipe.json"),
    *("package.json", "server.json", "server.yaml", "server.py", "manifest.json", "catalog.json"),
    *("mcp.json", "mcpServers.json", "config.json", "adapter_config.json", "tokenizer.json"),
    *("requirements.txt", "card.json", "job.json", "index.json", "release.json", "encoder.json"),
    *("summary.json", "report.md", "history.json"),
}


def test_docstrings_point_at_files_that_exist():
    folders = [ROOT / name for name in (*PACKAGES, "docs", "tests", "benchmarks", "scripts")]
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    names = [f"/{path.relative_to(ROOT)}" for path in paths]
    broken = [
        f"{path}: {pointer}"
        for path in files()
        for node in nodes(path)
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
        for pointer in POINTER.findall(ast.get_docstring(node) or "")
        if Path(pointer).name not in OF_OTHERS
        and not any(name.endswith(f"/{pointer}") for name in names)
    ]
    assert not broken, "\n".join(broken)


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
def list_classes() -> list[tuple[str, str]]:
    """(module, name) of every class."""
    return [
        (module, node.name)
        for module, path in modules().items()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    ]


def list_bindings(path: Path) -> Iterator[str]:
    """Every name that an assignment, a loop or a parameter binds."""
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def count_words(name: str) -> int:
    return len(re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z][a-z0-9]*", name))


def test_classes_are_noun_phrases_no_participles_and_no_two_of_a_package_share_a_name():
    names = [name for _, name in list_classes()]
    short = [name for name in names if count_words(name) == 1]
    assert len(short) <= MOST_ONE_WORD * len(names), f"say more than one word: {sorted(short)}"
    wrong = [f"{module}.{name}" for module, name in list_classes() if PARTICIPLE.fullmatch(name)]
    assert not wrong, f"name what it is, not what was done: {wrong}"
    seen = Counter((module.rpartition(".")[0], name) for module, name in list_classes())
    assert not [pair for pair, count in seen.items() if count > 1]


def test_variables_say_what_they_hold():
    names = Counter(name for path in files() for name in list_bindings(path))
    fillers = {name: count for name, count in names.items() if name in FILLERS}
    assert sum(fillers.values()) <= MOST_FILLERS * names.total(), fillers


@cases("name, words", ("Launch", 1), ("LaunchRecipe", 2), ("HTTPServer", 2), ("_Part", 1))
def test_words_of_a_name_are_counted_by_their_capitals(name, words):
    assert count_words(name) == words


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


def test_each_test_claims_something():
    silent = [
        f"{path.relative_to(ROOT)}:{test.lineno} {test.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for test in functions_of(path.read_text(encoding="utf-8"))
        if not has_claim(test)
    ]
    assert not silent, f"no assert, no expected error, no assert_/check_/expect_ helper: {silent}"


@cases(
    "body, expected",
    ("work()", False),
    ("assert work()", True),
    ("check_work()", True),
    ("with pytest.raises(ValueError):\n  work()", True),
    ("async def inner():\n  await work()", False),
)
def test_a_claim_is_an_assert_an_expected_error_or_a_helper_that_asserts(body, expected):
    [test] = functions_of(f"def test_x():\n {body.replace(chr(10), chr(10) + ' ')}")
    assert has_claim(test) is expected


ELSEWHERE = {"e2e", "hostile", "support"}  # of no package: whole runs, attacks, helpers


def test_folders_are_named_after_packages():
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")} - ELSEWHERE
    strays = [
        name for name in folders if not any((ROOT / at / name).is_dir() for at in ("", "assets"))
    ]
    assert not strays, f"no package of that name: {strays}"
