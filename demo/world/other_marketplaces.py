"""Which of the demo's servers the seven other marketplaces list, and how they differ."""

from collections.abc import Mapping
from typing import Any

from demo.world.record import Remote

Entry = tuple[str, Mapping[str, Any]]  # slug of the server, and what this marketplace says instead

_SERVERS = "github.com/modelcontextprotocol/servers"

OTHER_MARKETPLACES: Mapping[str, tuple[Entry, ...]] = {
    "smithery": (
        ("server-memory", {"namespace": "smithery-reference", "title": "Knowledge Graph Memory"}),
        ("mcp-server-fetch", {"namespace": "smithery-reference"}),
        (
            "notion",
            {"title": "Notion MCP", "repository": "http://github.com/makenotion/notion-mcp-server"},
        ),
        ("playwright-mcp", {"title": "Playwright Browser Automation"}),
        ("server-everything", {"description": "A reference server. (Imported in 2025.)"}),
    ),
    "glama": (
        ("server-filesystem", {"repository": f"https://{_SERVERS}.git"}),
        ("mcp-server-git", {"repository": f"http://{_SERVERS}", "title": "mcp-server-git"}),
        ("excel-mcp-server", {"description": "A Model Context Protocol server for Excel files."}),
        ("notion", {"repository": "https://github.com/makenotion/notion-mcp-server.git"}),
        (
            "notion",
            {
                "slug": "notion-hosted",
                "title": "Notion (hosted)",
                "package": None,
                "inputs": (),
                "remote": Remote("https://mcp.notion.example/mcp", auth="oauth2"),
            },
        ),
    ),
    "pulsemcp": (
        ("server-everything", {"title": "Everything (Reference)"}),
        ("server-memory", {"repository": f"https://{_SERVERS}.git"}),
        ("mcp-server-time", {"description": "Time and timezone conversion."}),
        ("playwright-mcp", {}),
        ("excel-mcp-server", {"title": "Excel (haris-musa)"}),
    ),
    "mcphub": (
        ("server-filesystem", {"title": "filesystem"}),
        ("mcp-server-git", {"description": "Git tools. (Imported in 2025.)"}),
        ("mcp-server-time", {"repository": f"https://{_SERVERS}/tree/main/src/time"}),
        ("notion", {"title": "Notion Official"}),
    ),
    "deepnlp": (
        ("mcp-server-fetch", {"repository": f"https://{_SERVERS}/tree/main/src/fetch"}),
        ("mcp-atlassian", {"title": "MCP Atlassian"}),
        ("server-memory", {"odd": "no_config"}),
        ("notion", {"description": "Official Notion server, as listed in spring 2025."}),
    ),
    "pipedream": (
        ("notion", {"package": None}),
        ("mcp-atlassian", {"slug": "jira", "title": "Jira", "package": None}),
        (
            "mcp-server-time",
            {"slug": "clock", "title": "Clock", "package": None, "description": "World clock."},
        ),
    ),
    "docker": (
        ("mcp-server-fetch", {"slug": "fetch", "title": "Fetch (Reference)"}),
        ("mcp-server-time", {"slug": "time", "title": "Time (Reference)"}),
        ("notion", {"title": "Notion"}),
        (
            "notion",
            {
                "slug": "notion-remote",
                "package": None,
                "inputs": (),
                "remote": Remote("https://mcp.notion.example/mcp", auth="oauth2"),
            },
        ),
    ),
}
