"""Real packages from the registries, through fetch, sandbox and probe."""

import time

import pytest

from assets.servers.deploy.plan import deploy_listings, summarise_rows
from assets.servers.deploy.policy import DeployPolicy
from tests.servers.conftest import npm, pypi
from tests.support.untrusted_server import require_sandbox

pytestmark = pytest.mark.registry

REFERENCE = "@modelcontextprotocol/server-"
SECRETS = ("JIRA_URL", "JIRA_USERNAME", "JIRA_API_TOKEN", "CONFLUENCE_URL", "CONFLUENCE_USERNAME")


def _deploy(warehouse, listings, previous=()):
    require_sandbox()
    return deploy_listings(
        listings,
        previous,
        DeployPolicy(warehouse.home),
        ledger=warehouse.ledger,
        blobs=warehouse.blobs,
        run_date="n1",
        now=time.time(),
    )


def _tools(run):
    return {row["server_id"]: row["error_kind"] or row["n_tools"] for row in run.rows}


# A Python server that exists is fetched, probed and called in `calls/test_calls_registry.py`.
def test_packages_that_do_not_exist_are_not_found(warehouse):
    absent = "toolmill-test-no-such-package"
    run = _deploy(warehouse, [pypi(absent), npm(f"@{absent}/x")])
    if "fetch_failed" in _tools(run).values():
        pytest.skip("the package registries are out of reach")
    assert _tools(run) == {
        f"pypi:{absent}": "not_found",
        f"npm:@{absent}/x": "not_found",
    }


@pytest.mark.slow
def test_twelve_real_servers_list_their_tools(warehouse):
    keyed = [{"name": name, "required": True} for name in (*SECRETS, "CONFLUENCE_API_TOKEN")]
    listings = [
        *(npm(REFERENCE + name, "2026.8.31") for name in ("everything", "filesystem", "memory")),
        npm(REFERENCE + "sequential-thinking", "2026.8.31"),
        npm("@playwright/mcp", "0.0.83"),
        npm("@notionhq/notion-mcp-server", "2.5.2", env=[{"name": "NOTION_TOKEN", "secret": True}]),
        pypi("mcp-server-time", "2026.10.19"),
        pypi("mcp-server-fetch", "2026.10.24"),
        pypi("mcp-server-git", "2026.10.19"),
        pypi("arxiv-mcp-server", "0.8.2"),
        pypi("excel-mcp-server", "2.2.2"),
        pypi("mcp-atlassian", "0.23.1", env=keyed),
    ]
    run = _deploy(warehouse, listings)
    assert sorted(_tools(run).values()) == [1, 1, 2, 9, 12, 13, 14, 19, 24, 25, 46, 98]
    assert summarise_rows(run.rows)["tools"] == 264
    assert _deploy(warehouse, listings, run.rows).done == []
