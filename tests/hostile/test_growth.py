"""No text of a third party takes time that grows faster than its length."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import index_contracts, tool_text
from assets.contracts.repair.json_text import parse_arguments
from assets.servers.calls.attribution import find_fault
from assets.servers.probe.failure_kinds import classify_last_words
from assets.servers.probe.probe import ProbeResult
from assets.servers.recipes.package_files import read_command
from assets.servers.recipes.placeholders import make_value
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.recipe_plan import fill_address, fill_arguments
from assets.servers.recipes.relaunch import make_next_guess
from serving.repair.drafts import read_drafts
from tests.support.growth import MOST, measure_growth

_RECIPE = LaunchRecipe(server_id="pypi:x", ecosystem="pypi", name="x", released="2026-01-01")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def _read_title(folder: Path, text: str) -> Any:
    about = {"type": "string", "required": True, "title": text, "description": text}
    manifest = {
        "server": {"type": "python", "entry_point": "x.py"},
        "user_config": {"api_key": about},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return read_command(folder, "/python", None)


def _read_last_words(_: Path, text: str) -> Any:
    failure = classify_last_words(text, 1, None)
    result = ProbeResult(status="failed", error_kind=failure.kind, stderr_tail=text)
    return make_next_guess(_RECIPE, result, [_RECIPE])


def _index_tools(_: Path, text: str) -> Any:
    tools = [{"name": f"{text}{n}", "inputSchema": {}} for n in range(3)]
    return index_contracts(tools), [tool_text(tool) for tool in tools]


Parser = Callable[[Path, str], Any]
PARSERS: dict[str, tuple[Parser, list[tuple[str, str, str]]]] = {
    "title in a manifest": (
        _read_title,
        [("", "_", ""), ("", "encrypt", ""), ("", "defaults ", "")],
    ),
    "address of a listing": (
        lambda _, text: fill_address(text),
        [("https://", "{", ""), ("", "<a", "")],
    ),
    "argument of a listing": (
        lambda _, text: fill_arguments((text, f"a://{text}", f"--{text}={text}")),
        [("", "{", ""), ("", "your-", ""), ("--", "a", "")],
    ),
    "name of a variable": (
        lambda _, text: make_value(text, text, context=text),
        [("", "_", ""), ("", "aA", ""), ("default", ":", ""), ("", "encrypt_", "")],
    ),
    "standard error": (
        _read_last_words,
        [
            ("", "_", ""),
            ("", "A_", ""),
            ("", "enoent ", ""),
            ("", "\n", "x"),
            ("missing option", "\n -a", ""),
        ],
    ),
    "error of a call": (
        lambda _, text: find_fault(text, arguments={text: text, "a": [text] * 20}),
        [("", "_", ""), ("error ", "a ", ""), ("tool ", "a", ""), ("", "invalid\n", "")],
    ),
    "names of tools": (_index_tools, [("", "a", ""), ("", "aA", ""), ("", "é_", "")]),
    "arguments of a model": (
        lambda _, text: parse_arguments(text),
        [
            ('{"a": "', '\\"', ""),
            ("", '\\"', ""),
            ('{"a": ', "/*//\n", ""),
            ("{", '"a":', ""),
            ("{", ",", ""),
            ("{'a': ", "/*", ""),
            ("", "[", ""),
        ],
    ),
    "answer of a model": (
        lambda _, text: read_drafts(text),
        [("", "<tool_call>", ""), ("", "```", ""), ("", '{"', ""), ("", "{", ""), ("f(", "a=", "")],
    ),
}
_ROWS = [(name, pump) for name, (_, pumps) in PARSERS.items() for pump in pumps]


@pytest.mark.parametrize(("name", "pump"), _ROWS, ids=lambda value: repr(value))
def test_a_parser_takes_time_in_proportion(
    name: str, pump: tuple[str, str, str], folder: Path
) -> None:
    parse = PARSERS[name][0]
    assert measure_growth(lambda text: parse(folder, text), pump) <= MOST
