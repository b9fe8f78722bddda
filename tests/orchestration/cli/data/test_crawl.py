"""`toolmill crawl` as a person meets it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.server import Replicas, replicas
from tests.outcomes.worlds.files import SMALL, write_world
from tests.support.cases import cases
from tests.support.command import invoke_toolmill, toolmill


@pytest.fixture(scope="module")
def sites() -> Iterator[Replicas]:
    with replicas(scale="full", servers=12, sites=("glama", "docker", "registry")) as running:
        yield running


def test_a_marketplace_that_is_not_is_usage_and_one_without_its_key_says_what_to_set(tmp_path):
    assert invoke_toolmill("crawl", "nowhere", home=tmp_path).returncode == 2
    done = invoke_toolmill("crawl", "pulsemcp", "--json", home=tmp_path, TOOLMILL_SOURCE="live")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["completeness"], report["requests"]) == ("skipped: key missing", 0)
    assert "TOOLMILL_MARKETPLACES__PULSEMCP__TENANT_ID" in done.stderr


def test_one_marketplace_is_crawled_by_hand(sites, tmp_path):
    here = {"TOOLMILL_MARKETPLACES__DOCKER__BASE_URL": sites["docker"], "TOOLMILL_SOURCE": "live"}
    done = invoke_toolmill("crawl", "docker", "--json", home=tmp_path, **here)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["completeness"], len(report["listings"])) == ("complete", 12)
    assert not (tmp_path / "tables").exists()


def test_a_refused_key_fails_in_one_line_and_in_json(sites, tmp_path):
    at = "TOOLMILL_MARKETPLACES__GLAMA__"
    there = {"TOOLMILL_SOURCE": "live", f"{at}BASE_URL": sites["glama"], f"{at}API_KEY": "wrong"}
    done = invoke_toolmill("crawl", "glama", "--json", home=tmp_path, **there)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["completeness"] == "failed"
    assert "status 401" in report["problems"][0]["hint"]
    assert "wants a key" in done.stderr
    assert "wrong" not in done.stdout


def test_the_config_of_a_client_is_read(tmp_path):
    config = tmp_path / "mcp.json"
    config.write_text(
        json.dumps({"mcpServers": {"a": {"command": "npx", "args": ["-y", "boat-mcp@1.0.0"]}}})
    )
    done = invoke_toolmill("parse", "private", str(config), home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    [listing] = json.loads(done.stdout)
    assert (listing["name"], listing["runnable"]) == ("a", True)
    assert listing["package"]["identifier"] == "boat-mcp"
    config.write_text("{}")
    empty = invoke_toolmill("parse", "private", str(config), home=tmp_path / "home")
    assert (empty.returncode, json.loads(empty.stdout)) == (1, [])
    assert "mcp.json" in empty.stderr
    assert invoke_toolmill("parse", "glama", str(config), home=tmp_path).returncode == 2


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOOLMILL_WORLDS__PATHS", json.dumps([str(tmp_path / "worlds")]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worlds").mkdir()
    return tmp_path


def test_the_list_names_the_users_worlds_beside_ours_and_a_file_that_cannot_be_used(place):
    write_world(place / "worlds")
    code, out, _ = toolmill("worlds", "--json")
    rows = {item["name"]: item for item in json.loads(out)["worlds"]}
    assert (code, rows["small"]["kind"], rows["small"]["servers"]) == (0, "folder", ["npm:files"])
    assert (rows["small"]["tools"], rows["small"]["tools_with_tasks"]) == (2, 2)
    assert rows["office-folder"]["why"] is None
    assert "small  folder  available" in toolmill("worlds")[1]
    write_world(place / "worlds", SMALL.replace('"folder"', '"castle"'), "castle")
    code, out, _ = toolmill("worlds")
    assert code == 1
    assert "kind 'castle' does not exist" in out
    assert "small  folder  available" in out


@cases(
    "arguments, told",
    (("nowhere",), "no world is called 'nowhere'"),
    (("nowhere", "--check"), "no world is called 'nowhere'"),
    (("small", "--check", "--server", "npm:none"), "--server 'npm:none' does not exist"),
)
def test_what_does_not_exist_is_usage(place, arguments, told):
    write_world(place / "worlds")
    code, _, err = toolmill("worlds", *arguments)
    assert code == 2
    assert told in err
    assert "Traceback" not in err


def test_a_check_without_servers_compares_resets(place):
    path = write_world(place / "worlds")
    code, out, _ = toolmill("worlds", "small", "--check", "--json")
    (row,) = json.loads(out)["worlds"]
    assert (code, row["status"], row["tasks_made"], len(row["digests"])) == (0, "ok", 4, 2)
    path.write_text(SMALL.replace('key = "*.txt"', 'key = "*.pdf"'))
    code, out, _ = toolmill("worlds", "small", "--check", "--json")
    (row,) = json.loads(out)["worlds"]
    assert (code, row["status"]) == (1, "failed")
    assert "no fact matches '*.pdf'" in row["why"]
