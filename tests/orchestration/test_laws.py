"""The laws that lint alone cannot hold: where Dagster may be, and which way imports go."""

import ast
from functools import cache
from pathlib import Path

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


def modules() -> list[Path]:
    result = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return [path for path in result if "bundles" not in path.parts]


@cache
def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_dagster_stays_at_the_doors():
    allowed = {ROOT / "assets/partitions.py", ROOT / "warehouse/publish.py"}
    for path in modules():
        if path.name == "defs.py" or path in allowed or "orchestration" in path.parts:
            continue
        if path.is_relative_to(ROOT / "extensions" / "upkeep"):
            continue  # upkeep reads and edits Dagster's own records
        roots = {name.split(".")[0] for name in imported(path)}
        assert not roots & {"dagster", "dagster_ray"}, path.relative_to(ROOT)


def test_imports_go_one_way():
    for path in modules():
        package = path.relative_to(ROOT).parts[0]
        ours = {name.split(".")[0] for name in imported(path)} & set(PACKAGES)
        wrong = ours - {package} - ALLOWED[package]
        wrong -= {"extensions"}  # has a law of its own, below
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


# Who reads snapshots although everything downstream is made of clear contracts.
READS_SNAPSHOTS = {
    "assets/catalogue/defs.py",  # counts the tools that a server lists, held or not
    "assets/synthesis/export/card.py",  # names the versions an export of a past day was made from
    "assets/synthesis/export/selection.py",  # contracts as of a past day; what is held is asked now
    "assets/synthesis/old_contracts.py",  # contracts that are no longer listed
    "extensions/upkeep/takedowns.py",  # what a take-down reaches was listed once, held or not
    "orchestration/tables.py",  # names every table that a home may hold
    "orchestration/runs/summary.py",  # counts the tools that were listed, held or not
}


def test_downstream_reads_clear_contracts_and_no_snapshots():
    result = set()
    for path in modules():
        if "contracts" in path.relative_to(ROOT).parts:
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "SNAPSHOTS" in text else ():
            names = node.names if isinstance(node, ast.ImportFrom) else []
            if any(name.name == "SNAPSHOTS" for name in names):
                result.add(str(path.relative_to(ROOT)))
    assert result == READS_SNAPSHOTS


def test_no_import_cycle():
    files = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in modules()}
    edges = {
        name: {target for target in imported(path) if target in files}
        for name, path in files.items()
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name in done:
            return
        for target in edges[name]:
            visit(target, (*trail, name))
        done.add(name)

    for name in edges:
        visit(name, ())


def test_serving_imports_neither_dagster_nor_torch():
    for path in (ROOT / "serving").rglob("*.py"):
        roots = {name.split(".")[0] for name in imported(path)}
        assert not roots & {"dagster", "torch", "transformers", "peft"}, path


def test_every_module_says_what_belongs_there():
    for path in modules():
        text = path.read_text()
        assert not text.strip() or ast.get_docstring(ast.parse(text)), path.relative_to(ROOT)


# Modules of the core that still import an extension. The list only shrinks.
STILL_IMPORT_EXTENSIONS: set[str] = set()


def test_the_core_imports_no_extension_and_no_extension_another():
    result: set[str] = set()
    for path in modules():
        parts = path.relative_to(ROOT).parts
        own = parts[1] if parts[0] == "extensions" and len(parts) > 2 else None
        for name in imported(path):
            names = name.split(".")
            if names[0] == "extensions" and (own is None or names[1:2] != [own]):
                result.add(str(path.relative_to(ROOT)))
    assert result == STILL_IMPORT_EXTENSIONS


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
