"""Catalogue: which servers the replica marketplaces list, on which day and at which scale.

What belongs here: facts about servers (real packages pinned to versions that exist, and local
bundles), faults included. What does not: how a marketplace presents them (`registry.py`,
`website.py`).

Day two differs from day one by exactly one new server, one changed contract and one server gone:
`@playwright/mcp` 0.0.75 lists 23 tools and 0.0.83 lists 25; eight of the 23 changed their input
schema and fifteen did not (measured by listing both).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Literal

from demo.bundle import Bundle, pack

Scale = Literal["small", "standard", "large"]
SCALES: tuple[Scale, ...] = ("small", "standard", "large")
_REAL: frozenset[str] = frozenset({"standard", "large"})
_ALL: frozenset[str] = frozenset(SCALES)
_BOTH_DAYS = frozenset({1, 2})


@dataclass(frozen=True)
class Variable:
    """An environment variable a server reads."""

    name: str
    description: str
    required: bool = False
    secret: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Server:
    """One server of the demo world. `versions` gives the version listed from a day on."""

    slug: str
    title: str
    description: str
    kind: Literal["npm", "pypi", "mcpb", "none"]
    identifier: str
    versions: Mapping[int, str]
    on: frozenset[str]  # marketplaces: registry, mcpso
    args: tuple[Any, ...] = ()  # texts, or {name, format, description} for the user to fill in
    env: tuple[Variable, ...] = ()
    repository: str = "https://github.com/modelcontextprotocol/servers"
    scales: frozenset[str] = _REAL
    days: frozenset[int] = _BOTH_DAYS
    odd: str | None = None  # the way in which its listing is broken

    @property
    def registry_name(self) -> str:
        """Reverse-DNS name, as the official registry wants it."""
        owner = self.repository.removeprefix("https://github.com/").split("/")[0]
        return f"io.github.{owner.lower()}/{self.slug}"

    def version(self, day: int) -> str:
        return self.versions[max(known for known in self.versions if known <= day)]

    def revised_at(self, day: int, scale: str) -> str:
        """RFC 3339 time of the last edit. Its clock comes from the content, so that an edited
        catalogue never looks unchanged to a crawler that trusts it."""
        edited = max((known for known in self.versions if known <= day), default=1)
        if day not in self.days or (1 not in self.days):
            edited = day
        # Sets are sorted: their order in `repr` is another in every process.
        facts = json.dumps([asdict(self), self.version(day), scale], default=sorted)
        seconds = int(sha256(facts.encode()).hexdigest(), 16) % 86_400
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return f"2026-11-{19 + edited}T{clock}Z"


def _npm(slug: str, identifier: str, version: str, **facts: Any) -> Server:
    return _server(slug, "npm", identifier, version, **facts)


def _pypi(slug: str, identifier: str, version: str, **facts: Any) -> Server:
    return _server(slug, "pypi", identifier, version, **facts)


def _local(name: str, version: str, **facts: Any) -> Server:
    facts = {"repository": "https://github.com/toolmill/demo", "scales": _ALL} | facts
    return _server(name.replace("_", "-"), "mcpb", name, version, **facts)


def _server(slug: str, kind: Any, identifier: str, version: str, **facts: Any) -> Server:
    facts["on"] = frozenset(facts["on"].split())
    facts["versions"] = {1: version, **facts.pop("later", {})}
    return Server(slug=slug, kind=kind, identifier=identifier, **facts)


_DIRECTORY = {
    "name": "allowed_directory",
    "format": "filepath",
    "description": "A directory the server may read and write",
}
_ATLASSIAN = (
    Variable("JIRA_URL", "Address of Jira", True, default="https://example.atlassian.net"),
    Variable("JIRA_USERNAME", "Account of Jira", True, default="reader@example.com"),
    Variable("JIRA_API_TOKEN", "API token of the Jira account", True, secret=True),
    Variable(
        "CONFLUENCE_URL",
        "Address of Confluence",
        True,
        default="https://example.atlassian.net/wiki",
    ),
    Variable("CONFLUENCE_USERNAME", "Account of Confluence", True, default="reader@example.com"),
    Variable("CONFLUENCE_API_TOKEN", "API token of Confluence", True, secret=True),
)

SERVERS: tuple[Server, ...] = (
    _npm(
        "server-everything",
        "@modelcontextprotocol/server-everything",
        "2026.8.31",
        title="Everything",
        description="Exercises every feature of the protocol: tools, prompts and resources.",
        on="registry",
    ),
    _npm(
        "server-filesystem",
        "@modelcontextprotocol/server-filesystem",
        "2026.8.31",
        title="Filesystem",
        description="Reads, writes, searches and edits files in allowed directories.",
        on="registry mcpso",
        args=(_DIRECTORY,),
    ),
    _npm(
        "server-memory",
        "@modelcontextprotocol/server-memory",
        "2026.8.31",
        title="Memory",
        description="Keeps a knowledge graph of entities, relations and observations.",
        on="registry",
    ),
    _npm(
        "server-sequential-thinking",
        "@modelcontextprotocol/server-sequential-thinking",
        "2026.8.31",
        title="Sequential Thinking",
        description="Structures a line of thought into steps that can be revised.",
        on="registry",
        days=frozenset({1}),
    ),
    _npm(
        "playwright-mcp",
        "@playwright/mcp",
        "0.0.75",
        later={2: "0.0.83"},
        title="Playwright",
        description="Drives a web browser through the accessibility tree.",
        repository="https://github.com/microsoft/playwright-mcp",
        on="registry",
    ),
    _npm(
        "notion",
        "@notionhq/notion-mcp-server",
        "2.5.2",
        title="Notion",
        description="Searches, reads and edits pages and databases of a Notion workspace.",
        repository="https://github.com/makenotion/notion-mcp-server",
        on="mcpso",
        env=(Variable("NOTION_TOKEN", "Integration token", True, secret=True),),
    ),
    _pypi(
        "mcp-server-time",
        "mcp-server-time",
        "2026.10.19",
        title="Time",
        description="Tells the time and converts it between time zones.",
        on="registry mcpso",
        args=("--local-timezone", "UTC"),
    ),
    _pypi(
        "mcp-server-fetch",
        "mcp-server-fetch",
        "2026.10.24",
        title="Fetch",
        description="Fetches a web page and turns it into Markdown.",
        on="mcpso",
    ),
    _pypi(
        "mcp-server-git",
        "mcp-server-git",
        "2026.10.19",
        title="Git",
        description="Reads, searches and changes a local Git repository.",
        on="mcpso",
    ),
    _pypi(
        "arxiv-mcp-server",
        "arxiv-mcp-server",
        "0.8.2",
        title="arXiv",
        description="Searches, downloads and reads papers of arXiv.",
        repository="https://github.com/blazickjp/arxiv-mcp-server",
        on="registry",
        days=frozenset({2}),
    ),
    _pypi(
        "excel-mcp-server",
        "excel-mcp-server",
        "2.2.2",
        title="Excel",
        description="Creates, reads and formats Excel workbooks without Excel.",
        repository="https://github.com/haris-musa/excel-mcp-server",
        on="registry",
        args=("stdio",),
    ),
    _pypi(
        "mcp-atlassian",
        "mcp-atlassian",
        "0.23.1",
        title="Atlassian",
        description="Works with issues of Jira and pages of Confluence.",
        repository="https://github.com/sooperset/mcp-atlassian",
        on="mcpso",
        env=_ATLASSIAN,
    ),
    _npm(
        "mongodb-mcp-server",
        "mongodb-mcp-server",
        "3.0.4",
        title="MongoDB",
        description="Queries and administers MongoDB databases and Atlas clusters.",
        repository="https://github.com/mongodb-js/mongodb-mcp-server",
        on="registry",
        env=(
            Variable(
                "MDB_MCP_CONNECTION_STRING",
                "Connection string of the database",
                default="mongodb://127.0.0.1:27017/demo",
            ),
        ),
        scales=frozenset({"large"}),
    ),
    _local(
        "units",
        "1.2.0",
        title="Units",
        description="Converts lengths, masses, volumes and temperatures between units.",
        on="registry mcpso",
    ),
    _local(
        "dates",
        "1.0.1",
        title="Dates",
        description="Calendar arithmetic: spans, weekdays, working days and month sheets.",
        on="registry",
    ),
    _local(
        "textkit",
        "0.9.0",
        title="Textkit",
        description="Counts, compares, wraps and reshapes plain text.",
        on="mcpso",
    ),
    # At the small scale the three changes of day two are bundles, so that no package is fetched.
    _local(
        "notes",
        "1.0.0",
        later={2: "2.0.0"},
        title="Notes",
        description="Keeps short notes with tags: write, read, search, extend and delete them.",
        on="registry",
        scales=frozenset({"small"}),
    ),
    _local(
        "tabular",
        "0.4.0",
        title="Tabular",
        description="Summarises, filters, sorts and groups small CSV tables.",
        on="mcpso",
        scales=frozenset({"small"}),
        days=frozenset({1}),
    ),
    _local(
        "inventory",
        "1.1.0",
        title="Inventory",
        description="Stock of a small warehouse: receive, pick, look up and reorder goods.",
        on="mcpso",
        scales=frozenset({"small"}),
        days=frozenset({2}),
    ),
    # Faults. Each is contained, classified and explained by the platform; none stops a night.
    _local(
        "needs_key",
        "0.3.0",
        title="Weatherkey",
        description="Weather for paying customers; ends at start without an API key.",
        on="registry",
        env=(Variable("WEATHERKEY_API_KEY", "Key of the account", True, secret=True),),
    ),
    _local(
        "hangs",
        "0.1.0",
        title="Slowpoke",
        description="Never answers; listed to see that it is contained.",
        on="registry",
        scales=_REAL,
    ),
    _npm(
        "never-published",
        "@modelcontextprotocol/server-that-was-never-published",
        "1.0.0",
        title="Never published",
        description="Names a package that does not exist.",
        on="mcpso",
    ),
    _npm(
        "malformed",
        "@example/malformed",
        "1.0.0",
        title="Malformed",
        description="Its packages are a text where a list is due.",
        repository="https://github.com/toolmill/demo",
        on="registry",
        scales=_ALL,
        odd="malformed",
    ),
    _npm(
        "shell-syntax",
        "@example/shell-syntax",
        "1.0.0",
        title="Shell syntax",
        description="Its command wants a shell, and gets none.",
        repository="https://github.com/toolmill/demo",
        on="mcpso",
        scales=_ALL,
        odd="shell",
    ),
    Server(
        slug="no-command",
        title="No command",
        description="A page that tells no way to start the server.",
        kind="none",
        identifier="",
        versions={1: "0"},
        on=frozenset({"mcpso"}),
        repository="https://github.com/toolmill/demo",
    ),
)


@dataclass(frozen=True)
class World:
    """What both marketplaces list on one day. `files_url` is where bundles are served."""

    day: int
    scale: str
    files_url: str = ""
    servers: tuple[Server, ...] = field(default=())

    def listed(self, marketplace: str) -> list[Server]:
        """Servers of one marketplace, by name."""
        return sorted(
            (server for server in self.servers if marketplace in server.on),
            key=lambda server: server.registry_name,
        )

    def bundle(self, server: Server) -> Bundle:
        return pack(server.identifier, server.version(self.day))

    def bundle_url(self, server: Server) -> str:
        return f"{self.files_url}/bundles/{server.identifier}.mcpb"

    def revised_at(self, server: Server) -> str:
        return server.revised_at(self.day, self.scale)


def world(day: int = 1, scale: str = "standard", files_url: str = "") -> World:
    """The demo world. Raises ValueError for a day or scale that does not exist."""
    if day not in (1, 2):
        raise ValueError(f"day {day} does not exist; the demo has days 1 and 2")
    if scale not in SCALES:
        raise ValueError(f"scale {scale!r} does not exist; there are {', '.join(SCALES)}")
    servers = tuple(s for s in SERVERS if scale in s.scales and day in s.days)
    return World(day, scale, files_url, servers)


def gone(day: int, scale: str) -> list[Server]:
    """Servers that were listed the day before and are not any more."""
    return [s for s in SERVERS if scale in s.scales and day not in s.days and day - 1 in s.days]
