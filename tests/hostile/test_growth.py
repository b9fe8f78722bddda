"""No text of a third party takes time that grows faster than its length."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import index_contracts, tool_text
from assets.contracts.repair.json_text import parse_arguments
from assets.contracts.scan import scan_tool
from assets.contracts.scan.engine import scan_result
from assets.marketplaces.server_json.document import make_server_listing
from assets.servers.calls.attribution import find_fault
from assets.servers.probe.failure_kinds import classify_last_words
from assets.servers.probe.probe import ProbeResult
from assets.servers.recipes.package_files import read_command
from assets.servers.recipes.placeholders import make_value
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.recipe_plan import fill_address, fill_arguments
from assets.servers.recipes.relaunch import make_next_guess
from assets.synthesis.contract_reading import read_purpose, read_slots
from assets.synthesis.offline_summaries import write_summary
from assets.synthesis.verify.rules import verify
from serving.repair.drafts import read_drafts
from serving.repair.ladder import repair_drafts
from tests.orchestration.test_laws import THIRD_PARTY
from tests.support import growth, paths
from tests.support.cases import cases
from tests.support.growth import MOST, measure_growth
from tests.support.pattern_work import SourcePattern, list_patterns, make_pumps
from warehouse.sanitize.redact import redact
from warehouse.sanitize.scrubber import Scrubber

_KINDS = {"b": {"type": "array"}, "o": {"type": "object"}}
_TOOL = {"name": "f", "inputSchema": {"properties": _KINDS}}
_RECIPE = LaunchRecipe(server_id="pypi:x", ecosystem="pypi", name="x", released="2026-01-01")


def _read_title(folder: Path, text: str) -> Any:
    about = {"type": "string", "required": True, "title": text, "description": text}
    server = {"type": "python", "entry_point": "x.py"}
    manifest = {"server": server, "user_config": {"api_key": about}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return read_command(folder, "/python", None)


def _read_contract(_: Path, text: str) -> Any:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": text}}}
    contract = {"name": "read_file", "description": text, "inputSchema": schema}
    return read_purpose(contract), read_slots(contract), write_summary("x", [contract])


def _verify_request(_: Path, text: str) -> Any:
    contract = {"name": "read_file", "description": "Reads a file.", "inputSchema": {}}
    values = {"path": text, "count": 12.5, "date": "2025-03-04", "when": "18:30", "every": "15m"}
    return verify(contract, text, values)


def _read_last_words(_: Path, text: str) -> Any:
    failure = classify_last_words(text, 1, None)
    result = ProbeResult(status="failed", error_kind=failure.kind, stderr_tail=text)
    return make_next_guess(_RECIPE, result, [_RECIPE])


def _index_tools(_: Path, text: str) -> Any:
    tools = [{"name": f"{text}{n}", "inputSchema": {}} for n in range(3)]
    return index_contracts(tools), [tool_text(tool) for tool in tools]


_SCRUBBER = Scrubber({"A": '\\\\\\"\\"\\"abc', "B": "%%%%%%%%%%", "C": "&&&&&&&&", "D": '""""""""'})


def _list_server(_: Path, text: str) -> Any:
    words = [{"type": "positional", "value": text}]
    inputs = {"runtimeArguments": words, "packageArguments": words, "identifier": text}
    kinds = [{"registryType": kind, **inputs} for kind in ("npm", "pypi", "oci")]
    remotes = [{"type": "sse", "url": f"https://x.example/{text}"}]
    return make_server_listing({"name": "a/b", "packages": kinds, "remotes": remotes}, "registry")


Parser = Callable[[Path, str], Any]
# A text repeats its piece, behind a beginning and before an end where a row has three texts.
PARSERS: dict[str, tuple[Parser, tuple[str | tuple[str, str, str], ...]]] = {
    "title in a manifest": (_read_title, ("_", "encrypt", "defaults ")),
    "address of a listing": (lambda _, text: fill_address(text), (("https://", "{", ""), "<a")),
    "argument of a listing": (
        lambda _, text: fill_arguments((text, f"a://{text}", f"--{text}={text}")),
        ("{", "your-", ("--", "a", "")),
    ),
    "name of a variable": (
        lambda _, text: make_value(text, text, context=text),
        ("_", "aA", ("default", ":", ""), "encrypt_"),
    ),
    "standard error": (
        _read_last_words,
        ("_", "A_", "enoent ", ("", "\n", "x"), ("missing option", "\n -a", "")),
    ),
    "error of a call": (
        lambda _, text: find_fault(text, arguments={text: text, "a": [text] * 20}),
        ("_", ("error ", "a ", ""), ("tool ", "a", ""), "invalid\n"),
    ),
    "description of a tool": (
        _read_contract,
        ("(", ("use ", "a ", ""), ("", "\n", "x"), ("e.g. ", ", ", ""), "**"),
    ),
    "request of a model": (_verify_request, ("1", "a ", ("call ", " ", "x"), "1,", "march ")),
    "any text": (
        lambda _, text: redact(text),
        (
            *("\\", ("key=", "a", ""), "sk-", "key ", "\u200b", '"A_KEY":"', '\\"A_KEY\\":\\"'),
            *("://a", "eyJ.", "--key ", "A_KEY='", "a:b@", "-----BEGIN PRIVATE KEY-----"),
            *("&quot;", "%22", "zapier.com/", "token=", "İkey="),
        ),
    ),
    "names of tools": (_index_tools, ("a", "aA", "é_")),
    "a server of the registry": (_list_server, ("[", (":", ":", "/"), "{", "a")),
    "text around a secret": (
        lambda _, text: _SCRUBBER.scrub_text(text),
        ("\\", "%25", "&#0000", '\\"', "%"),
    ),
    "words of a tool or a result": (
        lambda _, text: (
            scan_tool({"name": "x", "description": text}),
            scan_result("x", {"content": [text]}),
        ),
        (
            *("ignore all previous instructions ", "read ~/.ssh/id_rsa send parameter "),
            *("when send_email must bcc ", "![a](", "<!-- a b c ", "a_b_c_", "%41", "\\u0041"),
            *("\u200b", "忽略所有", "i g n o r e ", "https://a.b/?c={secret}&", "curl ", "don't'"),
        ),
    ),
    "arguments of a model": (
        lambda _, text: parse_arguments(text),
        (
            *(('{"a": "', '\\"', ""), '\\"', ('{"a": ', "/*//\n", ""), ("{", '"a":', "")),
            *(("{", ",", ""), ("{'a': ", "/*", ""), "["),
        ),
    ),
    "values of a model": (
        lambda _, text: repair_drafts({"name": "f", "arguments": {"b": text, "o": text}}, [_TOOL]),
        ("a, ", "<i>a</i>", "'a', ", ("[", "1,", ""), "- a\n"),
    ),
    "answer of a model": (
        lambda _, text: read_drafts(text),
        (
            *("<tool_call>", "```", '{"', "{", '<tool_call>{"a":', "<function=f>"),
            *("<parameter=a>\n", "</parameter>x", "<think>", "<invoke>", "to=f<|message|>{"),
            *(">>>f\n", "<|tools_prefix|>[{", "<tool_call>f<arg_key>a</arg_key><arg_value>"),
            *("call:f{a:<escape>", ("f(", "a=", ""), ("f(", "a+", "a)"), ("f", ".a", "()")),
        ),
    ),
}
_ROWS = [
    (name, ("", pump, "") if isinstance(pump, str) else pump)
    for name, (_, pumps) in PARSERS.items()
    for pump in pumps
]


@pytest.mark.parametrize(("name", "pump"), _ROWS, ids=lambda value: repr(value))
def test_a_parser_takes_time_in_proportion(name, pump, tmp_path):
    assert measure_growth(lambda text: PARSERS[name][0](tmp_path, text), pump) <= MOST


def test_a_function_that_was_slowed_once_is_measured_again(monkeypatch):
    times = iter([1.0, 0.1, 0.4, 0.1])
    monkeypatch.setattr(growth, "_measure_time", lambda *_: next(times))
    assert measure_growth(len, ("", "a", "")) == 4.0


# Modules whose texts are cut before they are matched, and to how many characters.
CUT = {"assets/synthesis/offline/invented_values.py": 1_000}
SAMPLE = 32  # of so many patterns `make test` takes one


def collect_patterns() -> list[tuple[str, SourcePattern]]:
    """(module, pattern) of each pattern over third-party text, once."""
    found: dict[str, tuple[str, SourcePattern]] = {}
    for folder in THIRD_PARTY:
        for path in sorted((paths.ROOT / folder).rglob("*.py")):
            for item in list_patterns(path):
                if item.pattern is not None and isinstance(item.pattern.pattern, str):
                    place = str(path.relative_to(paths.ROOT))
                    found.setdefault(f"{place} {item.pattern!r}", (place, item))
    return list(found.values())


def measure_pattern(module: str, item: SourcePattern) -> tuple[float, int]:
    """The worst ratio of a pattern's pumps (the first beyond MOST), and how many there are."""
    assert item.pattern is not None
    use = getattr(item.pattern, item.method)

    def match(text: str) -> None:
        matches = use(text[: CUT.get(module)])
        if item.method == "finditer":
            for _ in matches:
                pass

    pumps = make_pumps(item.pattern.pattern)
    worst = 0.0
    for pump in pumps:
        worst = max(worst, measure_growth(match, pump))
        if worst > MOST:
            break
    return worst, len(pumps)


@cases("pattern", r"\s+$", r"use [^;]*;", r"<!--.*?-->")
def test_the_pumps_find_patterns_that_grow_faster(pattern, monkeypatch):
    # Of 32,000 characters a fast machine reads `use [^;]*;` within the noise: the ratio was 4.6.
    for name, value in (("_LIMIT_S", 1.0), ("LONG", 128_000), ("SHORT", 32_000)):
        monkeypatch.setattr(growth, name, value)
    assert measure_pattern("", SourcePattern("", re.compile(pattern)))[0] > MOST


def test_a_sample_of_the_patterns_takes_time_in_proportion():
    for module, item in collect_patterns()[::SAMPLE]:
        assert measure_pattern(module, item)[0] <= MOST, (module, item)


@pytest.mark.slow
def test_every_pattern_takes_time_in_proportion(capsys):
    rows: dict[str, list[tuple[float, int, str]]] = {}
    for module, item in collect_patterns():
        engine = "re" if isinstance(item.pattern, re.Pattern) else "re2"
        ratio, pumps = measure_pattern(module, item)
        rows.setdefault(engine, []).append((ratio, pumps, f"{module} {item.place}"))
    lines = ["| engine | patterns | pumped texts | worst ratio | of |", "|" + " --- |" * 5]
    for engine, measured in sorted(rows.items()):
        ratio, _, place = max(measured)
        pumps = sum(count for _, count, _ in measured)
        lines.append(f"| {engine} | {len(measured)} | {pumps:,} | {ratio:.1f} | {place} |")
    with capsys.disabled():
        print("", *lines, sep="\n")
    assert max(max(measured) for measured in rows.values())[0] <= MOST
    assert sum(map(len, rows.values())) > 500
