"""`toolmill crawl` as a person meets it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.server import Replicas, replicas
from tests.support.command import invoke_toolmill

SERVER = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.acme/clock",
    "description": "Tells the time",
    "version": "1.2.3",
    "packages": [
        {
            "registryType": "pypi",
            "identifier": "acme-clock",
            "version": "1.2.3",
            "transport": {"type": "stdio"},
            "environmentVariables": [{"name": "CLOCK_TOKEN", "isRequired": True, "isSecret": True}],
        }
    ],
}


@pytest.fixture(scope="module")
def sites() -> Iterator[Replicas]:
    with replicas(scale="full", servers=12, sites=("glama", "docker", "registry")) as running:
        yield running


def test_a_saved_payload_is_printed_in_the_normal_form(tmp_path: Path) -> None:
    (tmp_path / "page.json").write_text(json.dumps({"servers": [{"server": SERVER}]}))
    done = invoke_toolmill(
        "crawl", "registry", "--file", str(tmp_path / "page.json"), "--json", home=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    [listing] = json.loads(done.stdout)
    assert listing["native_id"] == "io.github.acme/clock"
    assert (listing["command"], listing["args"]) == ("uvx", ["acme-clock==1.2.3"])
    assert listing["env"] == [
        {"name": "CLOCK_TOKEN", "required": True, "secret": True, "default": None}
    ]
    assert listing["package"]["type"] == "pypi"
    assert (listing["runnable"], listing["flags"]) == (True, ["needs_account"])


@pytest.mark.parametrize(
    ("body", "marketplace"),
    [
        ('{"servers": [', "registry"),
        ('{"error": "no"}', "registry"),
        ("<html><body>Just a moment...</body></html>", "glama"),
        ("", "docker"),
        (json.dumps({"servers": [{"server": SERVER}]}), "glama"),
    ],
)
def test_what_the_marketplace_does_not_serve_is_refused_in_one_line(
    body: str, marketplace: str, tmp_path: Path
) -> None:
    path = tmp_path / "payload"
    path.write_text(body)
    done = invoke_toolmill("crawl", marketplace, "--file", str(path), home=tmp_path)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "found" in done.stderr


def test_a_file_that_is_not_there_and_a_marketplace_that_is_not_are_usage(tmp_path: Path) -> None:
    assert (
        invoke_toolmill("crawl", "registry", "--file", "nowhere.json", home=tmp_path).returncode
        == 2
    )
    assert (
        invoke_toolmill("crawl", "nowhere", "--file", "nowhere.json", home=tmp_path).returncode == 2
    )
    assert invoke_toolmill("crawl", "nowhere", home=tmp_path).returncode == 2


def test_one_marketplace_is_crawled_by_hand(sites: Replicas, tmp_path: Path) -> None:
    done = invoke_toolmill(
        "crawl", "docker", "--base-url", sites["docker"], "--json", home=tmp_path
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["completeness"], len(report["listings"])) == ("complete", 12)
    assert report["evidence"]["launch"].split(":")[0] in ("captured", "documented", "guessed")
    assert not (tmp_path / "tables").exists()


def test_a_refused_key_fails_in_one_line_and_in_json(sites: Replicas, tmp_path: Path) -> None:
    done = invoke_toolmill(
        *("crawl", "glama", "--base-url", sites["glama"], "--json"),
        home=tmp_path,
        TOOLMILL_MARKETPLACES__GLAMA__API_KEY="wrong",
    )
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["completeness"] == "failed"
    assert "status 401" in report["problems"][0]["hint"]
    assert "wants a key" in done.stderr
    assert "wrong" not in done.stdout


def test_a_marketplace_without_its_key_is_skipped_and_says_what_to_set(tmp_path: Path) -> None:
    done = invoke_toolmill("crawl", "pulsemcp", "--json", home=tmp_path, TOOLMILL_SOURCE="live")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["completeness"], report["requests"]) == ("skipped: key missing", 0)
    assert "TOOLMILL_MARKETPLACES__PULSEMCP__TENANT_ID" in done.stderr
