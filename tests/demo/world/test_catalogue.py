"""The demo world: real packages, local bundles, and what day two changes."""

import io
import subprocess
import sys
import zipfile

import pytest

from demo.world.catalogue import SCALES, SERVERS, make_world, pack


@pytest.mark.parametrize("scale", SCALES[:-1])
def test_day_two_has_one_new_one_changed_and_one_gone(scale: str) -> None:
    first = {s.slug: s.find_version(1) for s in make_world(1, scale).servers}
    second = {s.slug: s.find_version(2) for s in make_world(2, scale).servers}
    assert len(second.keys() - first.keys()) == 1
    assert len(first.keys() - second.keys()) == 1
    assert len([s for s in first.keys() & second.keys() if first[s] != second[s]]) == 1


def test_the_standard_world_lists_the_real_packages_on_both_marketplaces() -> None:
    real = {
        s.identifier for d in (1, 2) for s in make_world(d).servers if s.kind in ("npm", "pypi")
    }
    assert real >= {
        "@modelcontextprotocol/server-everything",
        "@modelcontextprotocol/server-filesystem",
        "@modelcontextprotocol/server-memory",
        "@modelcontextprotocol/server-sequential-thinking",
        "@playwright/mcp",
        "@notionhq/notion-mcp-server",
        "mcp-server-time",
        "mcp-server-fetch",
        "mcp-server-git",
        "arxiv-mcp-server",
        "excel-mcp-server",
        "mcp-atlassian",
    }
    assert "mongodb-mcp-server" not in real
    assert "mongodb-mcp-server" in {s.identifier for s in make_world(1, "large").servers}
    registry, website = (make_world().list_records(name) for name in ("registry", "mcpso"))
    assert {s.slug for s in registry} & {s.slug for s in website}


def test_the_small_world_needs_no_package_registry() -> None:
    for day in (1, 2):
        runnable = [s for s in make_world(day, "small").servers if s.odd is None]
        assert all(s.kind in ("mcpb", "remote") for s in runnable)
        assert len([s for s in runnable if s.identifier != "needs_key"]) >= 4


def test_every_version_is_exact_and_edits_show_in_the_time_of_the_last_edit() -> None:
    for server in SERVERS:
        assert all(version[0].isdigit() for version in server.versions.values())
    playwright = next(s for s in SERVERS if s.slug == "playwright-mcp")
    git = next(s for s in SERVERS if s.slug == "mcp-server-git")
    assert playwright.find_revised_at(1, "standard") != playwright.find_revised_at(2, "standard")
    assert git.find_revised_at(1, "standard") == git.find_revised_at(2, "standard")


@pytest.mark.parametrize(("day", "scale"), [(0, "standard"), (3, "standard"), (1, "huge")])
def test_an_unknown_day_or_scale_is_refused(day: int, scale: str) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        make_world(day, scale)


def test_a_bundle_is_the_same_bytes_every_time_and_another_version_is_another_bundle() -> None:
    first = pack("notes", "1.0.0")
    pack.cache_clear()
    assert pack("notes", "1.0.0") == first
    assert pack("notes", "2.0.0").sha256 != first.sha256
    with zipfile.ZipFile(io.BytesIO(first.data)) as archive:
        assert sorted(archive.namelist()) == ["manifest.json", "server.py", "stdio.py"]


def test_the_times_are_the_same_in_every_process() -> None:
    code = """
from demo.world.catalogue import (make_world)
world = make_world()
print(*map(world.find_revised_at, world.servers))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
