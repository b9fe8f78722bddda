"""Configs are found wherever a page keeps them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.page import find_config

CONFIG = {"mcpServers": {"a": {"command": "npx", "args": ["-y", "a@1.0.0"]}}}
TEXT = json.dumps(CONFIG)
ESCAPED = TEXT.replace('"', "&quot;")


@pytest.mark.parametrize(
    ("html", "rule"),
    [
        (f"<pre><code>{ESCAPED}</code></pre>", "code"),
        (f"<pre>before\n{TEXT}\nafter</pre>", "pre"),
        (f"<script>x = {TEXT}</script>", "script"),
        (f"<script>x = {json.dumps(TEXT)}</script>", "script"),
        ("<pre>{mcpServers: {a: {command: 'npx', args: ['-y', 'a@1.0.0'],},}}</pre>", "pre"),
        (f"<pre>broken {{mcpServers: {{</pre><pre>{TEXT}</pre>", "pre"),
    ],
)
def test_a_config_is_found_wherever_it_stands(html: str, rule: str) -> None:
    found = find_config(html)
    assert found is not None
    assert found.rule == rule
    assert found.servers == CONFIG["mcpServers"]


def test_a_link_to_a_bundle_is_found_with_its_digest() -> None:
    found = find_config('<a href="/b/x.mcpb?v=1" data-sha256="ab">Install</a>')
    assert found is not None
    assert (found.rule, found.bundle, found.sha256) == ("link", "/b/x.mcpb?v=1", "ab")


@pytest.mark.parametrize(
    "html", ["", "<pre>mcpServers</pre>", "<p>{}</p>", "<script>mcpServers: f()</script>"]
)
def test_a_page_without_one_gives_none(html: str) -> None:
    assert find_config(html) is None


@given(st.text())
def test_any_text_is_searched_without_an_exception(html: str) -> None:
    find_config(html + "<pre>{'mcpServers':" + html)
