"""Homemade: bundles and broken listings made for the demo.

What belongs here: servers of `demo/bundles`, one that is remote, and faults: each is contained,
classified and explained by the platform, and none stops a night.
What does not: packages of others (`published.py`).
"""

from demo.world.facts import EVERY, REAL, Server, local, npm
from demo.world.record import Input

HOMEMADE: tuple[Server, ...] = (
    local(
        "units",
        "1.2.0",
        title="Units",
        description="Converts lengths, masses, volumes and temperatures between units.",
        on="registry mcpso",
    ),
    local(
        "dates",
        "1.0.1",
        title="Dates",
        description="Calendar arithmetic: spans, weekdays, working days and month sheets.",
        on="registry",
    ),
    local(
        "textkit",
        "0.9.0",
        title="Textkit",
        description="Counts, compares, wraps and reshapes plain text.",
        on="mcpso",
    ),
    # At the small scale the three changes of day two are bundles, so that no package is fetched.
    local(
        "notes",
        "1.0.0",
        later={2: "2.0.0"},
        title="Notes",
        description="Keeps short notes with tags: write, read, search, extend and delete them.",
        on="registry",
        scales=frozenset({"small"}),
    ),
    local(
        "tabular",
        "0.4.0",
        title="Tabular",
        description="Summarises, filters, sorts and groups small CSV tables.",
        on="mcpso",
        scales=frozenset({"small"}),
        days=frozenset({1}),
    ),
    local(
        "inventory",
        "1.1.0",
        title="Inventory",
        description="Stock of a small warehouse: receive, pick, look up and reorder goods.",
        on="mcpso",
        scales=frozenset({"small"}),
        days=frozenset({2}),
    ),
    Server(
        slug="glossary",
        title="Glossary",
        description="Explains the terms of tool contracts; somebody else runs it.",
        kind="remote",
        identifier="",
        versions={1: "1.0.0"},
        on=frozenset({"registry"}),
        repository="https://github.com/toolmill/demo",
        scales=EVERY,
    ),
    # Faults.
    local(
        "pantry",
        "0.2.0",
        title="Pantry",
        description="Looks into a kitchen pantry; one of its tools is poisoned.",
        on="mcpso",
    ),
    local(
        "needs_key",
        "0.3.0",
        title="Weatherkey",
        description="Weather for paying customers; ends at start without an API key.",
        on="registry",
        env=(Input("WEATHERKEY_API_KEY", "Key of the account", True, secret=True),),
    ),
    local(
        "hangs",
        "0.1.0",
        title="Slowpoke",
        description="Never answers; listed to see that it is contained.",
        on="registry",
        scales=REAL,
    ),
    npm(
        "never-published",
        "@modelcontextprotocol/server-that-was-never-published",
        "1.0.0",
        title="Never published",
        description="Names a package that does not exist.",
        on="mcpso",
    ),
    npm(
        "malformed",
        "@example/malformed",
        "1.0.0",
        title="Malformed",
        description="Its packages are a text where a list is due.",
        repository="https://github.com/toolmill/demo",
        on="registry",
        scales=EVERY,
        odd="malformed",
    ),
    npm(
        "shell-syntax",
        "@example/shell-syntax",
        "1.0.0",
        title="Shell syntax",
        description="Its command wants a shell, and gets none.",
        repository="https://github.com/toolmill/demo",
        on="mcpso",
        scales=EVERY,
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
