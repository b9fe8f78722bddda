"""The demo's worlds: packages, bundles that speak MCP, what day two changes, full worlds."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from demo.world.catalogue import MARKETPLACES, SCALES, SERVERS, list_sites, make_world, pack
from demo.world.full import make_full_world, make_record
from tests.demo.walk import count_differences
from tests.support.cases import cases
from tests.support.examples import examples
from training.sets.split import split_of


@pytest.mark.parametrize("scale", SCALES[:-1])
def test_day_two_has_two_new_one_changed_and_one_gone_at_the_sites_of_a_scale(scale):
    first = {s.slug: s.find_version(1) for s in make_world(1, scale).servers}
    second = {s.slug: s.find_version(2) for s in make_world(2, scale).servers}
    new = [s for s in make_world(2, scale).servers if s.slug in second.keys() - first.keys()]
    sides = {split_of(f"{s.kind}:{s.identifier}") for s in new}
    assert scale == "small" or sides == {"test", "train"}
    assert 0 < len(new) < 3
    assert len(first.keys() - second.keys()) == 1
    assert len([s for s in first.keys() & second.keys() if first[s] != second[s]]) == 1
    listing = [site for site in MARKETPLACES if make_world(1, scale).list_records(site)]
    assert tuple(listing) == list_sites(scale)


def test_the_small_world_needs_no_registry_and_every_version_is_exact():
    for day in (1, 2):
        runnable = [s for s in make_world(day, "small").servers if s.odd is None]
        assert all(s.kind in ("mcpb", "remote") for s in runnable)
        assert len([s for s in runnable if s.identifier != "needs_key"]) >= 4
    for server in SERVERS:
        assert all(version[0].isdigit() for version in server.versions.values())
    playwright = next(s for s in SERVERS if s.slug == "playwright-mcp")
    git = next(s for s in SERVERS if s.slug == "mcp-server-git")
    assert playwright.find_revised_at(1, "standard") != playwright.find_revised_at(2, "standard")
    assert git.find_revised_at(1, "standard") == git.find_revised_at(2, "standard")


@cases(
    "make, options",
    *((make_world, {"day": day}) for day in (0, 3)),
    (make_world, {"scale": "huge"}),
    (make_full_world, {"servers": 0}),
    (make_full_world, {"day": 3}),
)
def test_an_unknown_day_or_scale_is_refused(make, options):
    with pytest.raises(ValueError, match=r"expected|does not exist"):
        make(**options)


def test_a_bundle_and_the_times_are_the_same_every_time():
    first = pack("notes", "1.0.0")
    pack.cache_clear()
    assert pack("notes", "1.0.0") == first
    assert pack("notes", "2.0.0").sha256 != first.sha256
    with zipfile.ZipFile(io.BytesIO(first.data)) as archive:
        assert sorted(archive.namelist()) == ["manifest.json", "server.py", "stdio.py"]
    code = "from demo.world.catalogue import make_world as make; world = make(); "
    command = [sys.executable, "-c", code + "print(*map(world.find_revised_at, world.servers))"]
    first, second = (
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        for seed in "12"
    )
    assert first.stdout == second.stdout


HEALTHY = sorted(
    (server.identifier, version)
    for server in SERVERS
    if server.kind == "mcpb" and server.identifier not in ("needs_key", "hangs")
    for version in server.versions.values()
)


def unpacked(folder: Path, name: str, version: str) -> Path:
    with zipfile.ZipFile(io.BytesIO(pack(name, version).data)) as archive:
        archive.extractall(folder)
    return folder / "server.py"


def talk(server: Path, *requests: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of a bundle to requests sent one per line, then end of input."""
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate([("initialize", opening), *requests])
    ]
    command = [sys.executable, "-I", "-S", "-c", _RUN, str(server)]
    how: Any = {"input": "\n".join(lines), "env": {"HOME": str(server.parent)}, "text": True}
    output = subprocess.check_output(command, timeout=60, **how)
    return [json.loads(line) for line in output.splitlines()]


# Isolated mode leaves the script's own folder off the path; the sandbox's plain `python3` adds it.
_RUN = "import sys, runpy, os.path; p = sys.argv[1]; sys.path.insert(0, os.path.dirname(p)); \
runpy.run_path(p, run_name='__main__')"


@pytest.mark.parametrize(("name", "version"), HEALTHY)
def test_a_bundle_lists_three_to_six_described_tools(name, version, tmp_path):
    opened, listed = talk(unpacked(tmp_path, name, version), ("tools/list", {}))
    assert opened["result"]["serverInfo"]["version"] == version
    tools = listed["result"]["tools"]
    assert 3 <= len(tools) <= 6
    for tool in tools:
        assert len(tool["description"]) > 20
        assert tool["inputSchema"]["additionalProperties"] is False
        flaws = validate_call(tool, {"no_such_parameter": 1})
        assert flaws
        assert all(flaw.kind != "bad_schema" for flaw in flaws)


@cases(
    "name, version, tool, arguments, expected",
    ("units", "1.2.0", "convert_length", {"value": 2, "from_unit": "mile", "to_unit": "km"}, "3.2"),
    ("dates", "1.0.1", "weekday_of", {"on": "2026-11-21"}, "Saturday"),
    ("dates", "1.0.1", "count_working_days", {"start": "2026-11-02", "end": "2026-11-08"}, "5"),
    ("textkit", "0.9.0", "make_slug", {"headline": "Café au lait, twice"}, "cafe-au-lait-twice"),
    ("tabular", "0.4.0", "sort_rows", {"table": "a\n10\n9", "by": "a"}, "a\n9\n10"),
    ("notes", "1.0.0", "create_note", {"title": "a", "text": "b"}, '"id": 1'),
    ("notes", "2.0.0", "create_note", {"title": "a", "body": "b"}, '"id": 1'),
    ("inventory", "1.1.0", "receive_goods", {"sku": "AB-0001", "quantity": 3}, "3"),
)
def test_tools_do_what_they_say(name, version, tool, arguments, expected, tmp_path):
    server = unpacked(tmp_path, name, version)
    call = ("tools/call", {"name": tool, "arguments": arguments})
    _, listed, answer = talk(server, ("tools/list", {}), call)
    contract = next(item for item in listed["result"]["tools"] if item["name"] == tool)
    assert validate_call(contract, arguments) == []
    assert not answer["result"].get("isError")
    assert expected in answer["result"]["content"][0]["text"]


def test_a_wrong_call_is_an_error_of_the_tool_and_the_server_goes_on(tmp_path):
    server = unpacked(tmp_path, "dates", "1.0.1")
    wrong = ("tools/call", {"name": "weekday_of", "arguments": {"day": "today"}})
    unknown = ("tools/call", {"name": "nothing", "arguments": {}})
    _, first, second, third = talk(server, wrong, unknown, ("ping", {}))
    assert first["result"]["isError"]
    assert second["error"]["code"] == -32602
    assert third["result"] == {}


@cases("key", None, "placeholder", "wk_live_placeholder", "YOUR_API_KEY")
def test_the_keyed_bundle_ends_at_start_without_a_real_looking_key(key, tmp_path):
    command = [sys.executable, str(unpacked(tmp_path, "needs_key", "0.3.0"))]
    env = {"WEATHERKEY_API_KEY": key} if key else {}
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"API key required" in done.stderr


@given(st.integers(0, 300), st.integers(1, 300))
@examples(30)
def test_a_record_does_not_depend_on_how_many_there_are(index, more):
    here = make_full_world(servers=index + 1).list_records("registry")
    there = make_full_world(servers=index + 1 + more).list_records("registry")
    assert here[index] == there[index] == make_record(index)
    assert here[index].created_at <= here[index].revised_at < "2026-11-21", "before the second day"
    assert here.find_position(here[index].slug) == index
    assert here.find_position(f"other-{index}") is None


@given(st.integers(1, 400))
@settings(max_examples=20, deadline=None)
def test_the_second_day_differs_as_it_says(count):
    first = {record.slug: record for record in make_full_world(1, count).list_records("mcpso")}
    world = make_full_world(2, count)
    second = {record.slug: record for record in world.list_records("mcpso")}
    differences = {
        "new": len(second.keys() - first.keys()),
        "changed": sum(first[slug] != second[slug] for slug in first.keys() & second.keys()),
        "gone": len(first.keys() - second.keys()),
    }
    assert differences == count_differences(world)


def test_a_changed_record_keeps_its_older_version():
    records = make_full_world(2, 200).list_records("registry")
    assert len(records.older) == 2
    for slug, versions in records.older.items():
        now = records.find(slug)
        assert now
        assert [version.version for version in versions] != [now.version]
        assert now.revised_at > versions[0].revised_at


def test_marketplaces_tell_the_same_servers_in_other_words():
    world = make_full_world(servers=300)
    registry, glama = world.list_records("registry"), world.list_records("glama")
    pairs = list(zip(registry, glama, strict=True))
    assert all(one.package == other.package for one, other in pairs)
    spelt = [one.repository != other.repository for one, other in pairs]
    assert 0 < sum(spelt) < 150
    kinds = {item.package.kind for item in registry if item.package}
    assert kinds == {"npm", "pypi", "oci", "mcpb"}
    assert any(item.remote for item in registry)
