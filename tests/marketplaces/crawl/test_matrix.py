"""Every adapter against faults of its replica and mutated records; values left to the user."""

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from assets.marketplaces.crawl.crawl import crawl, load_adapter
from assets.marketplaces.launch.mcp_config import read_launch_facts
from assets.marketplaces.launch.shell_words import read_variables
from assets.marketplaces.listing import EnvVar
from assets.marketplaces.policy import CrawlError, CrawlPolicy, RecordRef
from demo.replicas.faults import KINDS
from demo.server import Replicas, replicas
from demo.world.record import KEYS
from tests.marketplaces.adapters import (
    test_deepnlp,
    test_docker,
    test_glama,
    test_mcphub,
    test_private,
    test_registry,
    test_smithery,
)
from tests.marketplaces.answers import POLICY, check_record, mutations
from tests.support.cases import cases
from tests.support.examples import examples
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs

# mcpso and mcphub render with Chromium: seconds a crawl; their faults are in test_crawl_mcpso.py.
SITES = ("registry", "smithery", "glama", "pulsemcp", "deepnlp", "pipedream", "docker")
SERVERS = 12
# Ways to misbehave after which a crawl may still call itself complete: nothing is missing.
HARMLESS = {
    *("duplicates", "huge_description", "bad_utf8", "hidden_text", "storm429", "rate_limit"),
    *("skew", "latency", "no_validators", "layout", "robots_disallow", "crawl_delay"),
    *("no_sitemap", "wrong_key", "cursor_loop"),
}
FAULTS = [kind for kind in KINDS if kind not in ("down", "error500", "crawl_delay", "latency")]
Found = tuple[str, set[str]]  # completeness, native ids


@pytest.fixture(scope="module")
def running() -> Iterator[Replicas]:
    with replicas(scale="full", servers=SERVERS, sites=SITES) as sites:
        yield sites


@pytest.fixture(scope="module")
def sound(
    running: Replicas, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Found, Path]]:
    """A first crawl of each site without faults, made once: what it found, and its ledger."""

    @cache
    def crawled(site: str) -> tuple[Found, Path]:
        home = tmp_path_factory.mktemp(site)
        running.switch(faults={})
        return ids(running, site, ledger_of(home), "1"), home

    return crawled


def ledger_of(home: Path) -> Ledger:
    return Ledger(home / "ledger.db", Blobs(home / "blobs"))


def ids(running: Replicas, site: str, ledger: Ledger, run_date: str) -> Found:
    at, scope = running[site], ("connectors", "servers") if site == "glama" else ()
    limits: Any = {"requests_per_second": 0, "allow_loopback": True, "max_body_mb": 32}
    policy = CrawlPolicy(at, site_url=at, keys=KEYS.get(site, {}), scope=scope, **limits)
    result = crawl(load_adapter(site, policy), ledger=ledger, run_date=run_date)
    assert all(listing.runnable or listing.reason for listing in result.listings)
    assert all(row["hint"] for row in result.problems)
    return result.completeness, {listing.native_id for listing in result.listings}


def list_cases() -> Iterator[Any]:
    """Every fault at every site: by default each fault at every second site and each site with
    every second fault, the others in `make test-all`."""
    for at, (site, fault) in enumerate(product(SITES, FAULTS)):
        turn = at // len(FAULTS) + at % len(FAULTS)
        yield pytest.param(site, fault, marks=[pytest.mark.slow] if turn % 2 else [])


@pytest.mark.parametrize(("site", "fault"), list_cases())
def test_a_fault_is_told_or_changes_nothing(site, fault, running, sound, tmp_path):
    first, home = sound(site)
    assert first[0] == "complete"
    ledger = ledger_of(shutil.copytree(home, tmp_path / "home"))
    value = {"storm429": ":2", "gzip_bomb": ":64", "rate_limit": ":50", "huge_description": ":2"}
    running.switch(faults={site: fault + value.get(fault, "")})
    raised: CrawlError | None = None
    found: Found = ("failed", set())
    try:
        found = ids(running, site, ledger, "2")
    except CrawlError as error:
        raised = error
    assert raised is None or (raised.kind and raised.fix)
    if found[0] == "complete":
        assert fault in HARMLESS
        assert found[1] == first[1]
    running.switch(faults={})
    # The good run after a bad one sees the whole marketplace again.
    assert ids(running, site, ledger, "3") == first


@cases(
    "name, value, expected",
    ("QUILL_DB", "QUILL_DB", (True, False, None)),  # its own name
    ("QUILL_PASSWORD", "QUILL_PASSWORD", (True, True, None)),
    ("MODE", "optional, [url|local], url is default", (True, False, None)),
    ("HEADERS", '{"Authorization": "Bearer abc_****", "V": "1"}', (True, True, None)),
    ("BOTS", '[{"name": "your-bot", "accessToken": "your-token"}]', (True, True, None)),
    ("AUTH_HEADER", "Bearer <token>", (True, True, None)),
    ("DB_URL", "postgresql://user:password@host:5432/db", (True, True, None)),
    # what is no secret and keeps its value
    ("LIMITS", '{"max": 3, "token_limit": 5}', (False, False, '{"max": 3, "token_limit": 5}')),
    ("HEADERS", '{"Version": "1"}', (False, False, '{"Version": "1"}')),
    ("DB_URL", "postgresql://localhost:5432/db", (False, False, "postgresql://localhost:5432/db")),
    ("NAMES", "[broken", (False, False, "[broken")),
    ("SCHEME", "Bearer", (False, False, "Bearer")),
    ("MODE", "optional", (False, False, "optional")),
    ("MODEL", "MODEL-X", (False, False, "MODEL-X")),
)
def test_one_variable(name, value, expected):
    [made] = read_variables({name: value}, EnvVar)
    assert (made.required, made.secret, made.default) == expected


@cases(
    "url, flags",
    ("https://a.example/sse?key=<YourKey>", ("needs_account", "placeholder")),
    ("https://a.example/mcp?exaApiKey=your-api-key&x=1", ("needs_account", "placeholder")),
    ("https://a.example/mcp?page=<n>", ("placeholder",)),
    ("https://a.example/mcp?sort=key", ()),
)
def test_a_secret_left_open_in_a_query_needs_an_account(url, flags):
    assert read_launch_facts({"url": url})["flags"] == set(flags)
    bridged = {"command": "npx", "args": ["-y", "mcp-remote", url]}
    assert read_launch_facts(bridged)["flags"] == set(flags)


@cases(
    "command, arguments, flags",
    ("env", ["A_KEY=fc-YOUR_KEY", "npx", "a@1.0.0"], {"needs_account", "placeholder"}),
    ("npx", ["a@1.0.0", "mysql://user:password@host/name"], {"needs_account", "placeholder"}),
    *(("npx", [spec], {"unpinned"}) for spec in ("a@1", "a@1.2", "a@^1.2.3", "a@1.x", "a")),
    # short versions of Python and images are what they say
    ("uvx", ["a==1.2"], set()),
    ("docker", ["run", "-i", "ghcr.io/a/b:1.2"], set()),
)
def test_what_a_command_leaves_open_is_flagged(command, arguments, flags):
    assert read_launch_facts({"command": command, "args": arguments})["flags"] == flags


def test_a_proxy_forwards_to_the_server_it_names_with_headers_of_two_words_and_dnx_has_versions():
    words = [
        "mcp-proxy", "--headers", "Authorization", "Bearer YOUR_TOKEN", "https://a.example/sse",
    ]  # fmt: skip
    facts = read_launch_facts({"command": "uvx", "args": words})
    assert facts["url"] == "https://a.example/sse"
    [fact] = facts["headers"]
    assert (fact.name, fact.required, fact.secret) == ("Authorization", True, True)
    facts = read_launch_facts({"command": "mcp-proxy", "args": ["https://a.example/sse"]})
    assert (facts["transport"], facts["url"]) == ("sse", "https://a.example/sse")
    assert not read_launch_facts({"command": "mcp-proxy", "args": ["--port", "1"]})["runnable"]
    words = ["Acme.Quill", "--version", "1.0.0", "--yes"]
    facts = read_launch_facts({"command": "dnx", "args": words})
    assert facts["package"].version == "1.0.0"
    assert not facts["runnable"]


SERVER: dict[str, Any] = {
    "title": "B",
    "repository": {"url": "https://github.com/a/b", "source": "github", "subfolder": "src"},
    "packages": [
        {
            "registryType": "npm", "identifier": "@a/b", "version": "1.0.0",
            "transport": {"type": "streamable-http", "url": "http://localhost:{port}/mcp",
                          "headers": [{"name": "X-Key", "value": "{key}", "isRequired": True,
                                       "variables": {"key": {"isSecret": True}}}]},
            "runtimeArguments": [{"type": "positional", "value": "-y"}],
            "packageArguments": [
                {"type": "named", "name": "--port", "valueHint": "port", "default": "80"},
                {"type": "positional", "valueHint": "dir", "format": "filepath",
                 "isRequired": True, "isRepeated": True},
            ],
            "environmentVariables": [{"name": "B_TOKEN", "isSecret": True, "choices": ["a"]}],
        },
        {"registryType": "oci", "identifier": "ghcr.io/a/b:1@sha256:" + "0" * 64},
    ],
    "remotes": [{"type": "sse", "url": "https://{region}.x.example/sse", "headers": [],
                 "variables": {"region": {"default": "eu", "choices": ["eu"]}}}],
}  # fmt: skip
SIGNED = {"remotes[0]": {"authOptions": [test_registry.KEYED]}}
NEEDED = {"properties": {"A_KEY": {"default": "x"}}, "required": ["A_KEY"]}
ENTRY = test_private.CONFIG["mcpServers"]["quill"]
RECORDS: list[tuple[str, Any]] = [
    ("registry", test_registry.record("a/b", **SERVER)),
    ("pulsemcp", test_registry.pulse_record("a/b", remotes=test_registry.REMOTES, version=SIGNED)),
    ("glama", test_glama.connector("a", "api_key")),
    ("glama", test_glama.server("a", **NEEDED)),
    ("smithery", test_smithery.detail(
        test_smithery.SCRIPT, test_smithery.OUTSIDE | {"configSchema": test_smithery.SCHEMA},
        test_smithery.BUNDLE, test_smithery.HOSTED)),
    ("deepnlp", {**test_deepnlp.detail([]), "tools": [{"name": "write", "input_schema": {}}]}),
    ("deepnlp", test_deepnlp.detail([test_deepnlp.config(env={"A_KEY": "x"}), "{}"])),
    ("deepnlp", test_deepnlp.item()),
    ("pipedream", test_glama.APP),
    ("docker", test_docker.ENTRY),
    ("private", {"key": "quill", "entry": ENTRY, "secret_inputs": ["x"]}),
    ("mcpso", {"html": test_mcphub.mcpso_page().decode(), "rendered": None}),
    ("mcphub", {"html": test_mcphub.page().decode(), "rendered": None}),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(RECORDS)))
def test_no_mutation_of_a_record_is_a_crash(at):
    name, record = RECORDS[at]

    @examples(50)
    @given(mutations(record))
    def check(raw: Any) -> None:
        check_record(load_adapter(name, POLICY), raw, RecordRef("a/b", POLICY.base_url))

    check()
