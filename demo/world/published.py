"""Published: servers of the demo that anybody can install from npm and PyPI.

Day two differs from day one by exactly one new server, one changed contract and one server gone:
`@playwright/mcp` 0.0.75 lists 23 tools and 0.0.83 lists 25; eight of the 23 changed their input
schema and fifteen did not (measured by listing both).
"""

from demo.world.facts import Server, make_npm_server, make_pypi_server
from demo.world.record import Input

_DIRECTORY = {
    "name": "allowed_directory",
    "format": "filepath",
    "description": "A directory the server may read and write",
}
_ATLASSIAN = (
    Input("JIRA_URL", "Address of Jira", True, default="https://example.atlassian.net"),
    Input("JIRA_USERNAME", "Account of Jira", True, default="reader@example.com"),
    Input("JIRA_API_TOKEN", "API token of the Jira account", True, secret=True),
    Input(
        "CONFLUENCE_URL",
        "Address of Confluence",
        True,
        default="https://example.atlassian.net/wiki",
    ),
    Input("CONFLUENCE_USERNAME", "Account of Confluence", True, default="reader@example.com"),
    Input("CONFLUENCE_API_TOKEN", "API token of Confluence", True, secret=True),
)

PUBLISHED: tuple[Server, ...] = (
    make_npm_server(
        "server-everything",
        "@modelcontextprotocol/server-everything",
        "2026.8.31",
        title="Everything",
        description="Exercises every feature of the protocol: tools, prompts and resources.",
        on="registry",
    ),
    make_npm_server(
        "server-filesystem",
        "@modelcontextprotocol/server-filesystem",
        "2026.8.31",
        title="Filesystem",
        description="Reads, writes, searches and edits files in allowed directories.",
        on="registry mcpso",
        args=(_DIRECTORY,),
    ),
    make_npm_server(
        "server-memory",
        "@modelcontextprotocol/server-memory",
        "2026.8.31",
        title="Memory",
        description="Keeps a knowledge graph of entities, relations and observations.",
        on="registry",
    ),
    make_npm_server(
        "server-sequential-thinking",
        "@modelcontextprotocol/server-sequential-thinking",
        "2026.8.31",
        title="Sequential Thinking",
        description="Structures a line of thought into steps that can be revised.",
        on="registry",
        days=frozenset({1}),
    ),
    make_npm_server(
        "playwright-mcp",
        "@playwright/mcp",
        "0.0.75",
        later={2: "0.0.83"},
        title="Playwright",
        description="Drives a web browser through the accessibility tree.",
        repository="https://github.com/microsoft/playwright-mcp",
        on="registry",
    ),
    make_npm_server(
        "notion",
        "@notionhq/notion-mcp-server",
        "2.5.2",
        title="Notion",
        description="Searches, reads and edits pages and databases of a Notion workspace.",
        repository="https://github.com/makenotion/notion-mcp-server",
        on="mcpso",
        env=(Input("NOTION_TOKEN", "Integration token", True, secret=True),),
    ),
    make_pypi_server(
        "mcp-server-time",
        "mcp-server-time",
        "2026.10.19",
        title="Time",
        description="Tells the time and converts it between time zones.",
        on="registry mcpso",
        args=("--local-timezone", "UTC"),
    ),
    make_pypi_server(
        "mcp-server-fetch",
        "mcp-server-fetch",
        "2026.10.24",
        title="Fetch",
        description="Fetches a web page and turns it into Markdown.",
        on="mcpso",
    ),
    make_pypi_server(
        "mcp-server-git",
        "mcp-server-git",
        "2026.10.19",
        title="Git",
        description="Reads, searches and changes a local Git repository.",
        on="mcpso",
    ),
    make_pypi_server(
        "arxiv-mcp-server",
        "arxiv-mcp-server",
        "0.8.2",
        title="arXiv",
        description="Searches, downloads and reads papers of arXiv.",
        repository="https://github.com/blazickjp/arxiv-mcp-server",
        on="registry",
        days=frozenset({2}),
    ),
    make_pypi_server(
        "excel-mcp-server",
        "excel-mcp-server",
        "2.2.2",
        title="Excel",
        description="Creates, reads and formats Excel workbooks without Excel.",
        repository="https://github.com/haris-musa/excel-mcp-server",
        on="registry",
        args=("stdio",),
    ),
    make_pypi_server(
        "mcp-atlassian",
        "mcp-atlassian",
        "0.23.1",
        title="Atlassian",
        description="Works with issues of Jira and pages of Confluence.",
        repository="https://github.com/sooperset/mcp-atlassian",
        on="mcpso",
        env=_ATLASSIAN,
    ),
    make_npm_server(
        "mongodb-mcp-server",
        "mongodb-mcp-server",
        "3.0.4",
        title="MongoDB",
        description="Queries and administers MongoDB databases and Atlas clusters.",
        repository="https://github.com/mongodb-js/mongodb-mcp-server",
        on="registry",
        env=(
            Input(
                "MDB_MCP_CONNECTION_STRING",
                "Connection string of the database",
                default="mongodb://127.0.0.1:27017/demo",
            ),
        ),
        scales=frozenset({"large"}),
    ),
)
