"""What README and docs name is there: links, commands and their options, functions of ours."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from orchestration.cli.app import app
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


def test_links_within_the_pages_lead_somewhere():
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


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, or None; and the words after its name."""
    command: Any = ROOT_COMMAND
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return (None if len(rest) == len(words) else command), rest


def test_commands_and_options_are_the_ones_there_are():
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
