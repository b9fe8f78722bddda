"""Saved payloads of every adapter: what is refused, what is read, and no mutation is a crash."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.crawl.crawl import load_adapter
from assets.marketplaces.policy import CrawlError, FetchedPage
from tests.marketplaces.adapters import (
    test_deepnlp,
    test_docker,
    test_glama,
    test_mcphub,
    test_mcpso,
    test_pipedream,
    test_private,
    test_pulsemcp,
    test_registry,
    test_smithery,
)
from tests.marketplaces.answers import (
    POLICY,
    check_page,
    check_reading,
    check_record,
    mutations,
    saved_page,
)
from tests.support.examples import examples
from tests.support.paths import SHARED

LISTS = {"registry": "servers", "smithery": "servers", "glama": "servers", "pulsemcp": "servers",
         "deepnlp": "items", "pipedream": "data"}  # fmt: skip
HTML = "text/html"


def page(body: bytes, content_type: str = HTML) -> FetchedPage:
    return FetchedPage("saved", content_type, body)


@pytest.mark.parametrize("name", [*LISTS, "docker", "mcpso", "mcphub", "private"])
@pytest.mark.parametrize(
    "payload",
    [
        saved_page({"error": "not found"}),
        saved_page({"openapi": "3.1.0", "info": {}, "paths": {}}),
        saved_page([]),
        saved_page([7]),
        saved_page("text"),
        saved_page(None),
        saved_page({"data": {}, "items": {}, "servers": [], "registry": {}}),
        page(b"<html><title>Other</title><h1>Other</h1></html>"),
        page(b'{"servers": [', "application/json"),
        page(b"[" * 100_000, "application/json"),
        page(b" ", "application/json"),
        page(b"openapi: 3.1.0", "application/yaml"),
    ],
)
def test_what_no_marketplace_serves_is_refused_in_one_line(name: str, payload: Any) -> None:
    with pytest.raises(CrawlError) as caught:
        load_adapter(name, POLICY).saved(payload)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("mcpso", test_mcpso.page(facts="", head="<title>Other</title>")),
        ("mcpso", test_mcpso.page(head='<link rel="canonical" href="https://mcphub.com/x">')),
        ("mcpso", test_mcpso.page()[:-20]),
        ("mcphub", test_mcphub.page(head='<link rel="canonical" href="https://mcphub.tools/x">')),
        ("mcphub", b"<html><title>A | MCPHub</title><h1>MCP Servers</h1></html>"),
    ],
)
def test_a_page_of_another_site_and_a_cut_one_are_refused(name: str, body: bytes) -> None:
    with pytest.raises(CrawlError):
        load_adapter(name, POLICY).saved(page(body))


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
SIGNED = {"remotes[0]": {"authOptions": [test_pulsemcp.KEYED]}}
NEEDED = {"properties": {"A_KEY": {"default": "x"}}, "required": ["A_KEY"]}
PAYLOADS: list[tuple[str, Any]] = [
    ("registry", test_registry.page(test_registry.record("a/b", **SERVER), cursor="next")),
    ("pulsemcp", {"servers": [test_pulsemcp.record("a/b", remotes=test_pulsemcp.REMOTES,
                                                   version=SIGNED)], "metadata": {}}),
    ("glama", test_glama.page("connectors", test_glama.connector("a", "api_key"), more=True)),
    ("glama", test_glama.server("a", **NEEDED)),
    ("smithery", test_smithery.detail(
        test_smithery.SCRIPT, test_smithery.OUTSIDE | {"configSchema": test_smithery.SCHEMA},
        test_smithery.BUNDLE, test_smithery.HOSTED)),
    ("deepnlp", {**test_deepnlp.detail([]), "tools": [{"name": "write", "input_schema": {}}]}),
    ("deepnlp", test_deepnlp.detail([test_deepnlp.config(env={"A_KEY": "x"}), "{}"])),
    ("deepnlp", test_deepnlp.listed(test_deepnlp.item())),
    ("pipedream", test_pipedream.apps("a", "b")),
    ("docker", {"registry": {"quill": test_docker.ENTRY}}),
    ("private", test_private.CONFIG | {"inputs": [{"id": "x", "password": True}]}),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(PAYLOADS)))
def test_no_mutation_of_a_payload_is_a_crash(at: int) -> None:
    name, payload = PAYLOADS[at]

    @examples(100)
    @given(mutations(payload))
    def check(value: Any) -> None:
        check_reading(load_adapter(name, POLICY), value)

    check()


@pytest.mark.parametrize("made", [test_mcpso, test_mcphub])
def test_no_mutation_of_a_pages_record_is_a_crash(made: Any) -> None:
    (ref,) = made.ADAPTER.saved(page(made.page()))

    @examples(50)
    @given(mutations({"html": made.page().decode(), "rendered": None, "servers": 1}))
    def check(raw: Any) -> None:
        check_record(made.ADAPTER, raw, ref)

    check()


@given(st.text(), st.sampled_from(["mcpso", "mcphub"]), st.sampled_from([HTML, "", "text/xml"]))
def test_any_text_of_a_page_is_read_or_refused(text: str, name: str, content_type: str) -> None:
    made = test_mcpso.page() if name == "mcpso" else test_mcphub.page(text.replace("<", "&lt;"))
    body = made + text.encode("utf-8", "surrogatepass")
    check_page(load_adapter(name, POLICY), page(body, content_type))


SAMPLES = SHARED / "marketplaces"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "file", "native_id"),
    [
        ("deepnlp", "list.sample.json", "user-agent-v1/mcp-server-markdown-demo"),
        ("deepnlp", "server.sample.json", "google-maps/google-maps"),
        ("pipedream", "connect.list-apps.shape.json", None),
        ("mcphub", "detail.2025-09.skeleton.html", None),
        ("mcpso", "detail.2026.skeleton.html", "new-slug"),
    ],
)
def test_stored_samples_are_read(name: str, file: str, native_id: str | None) -> None:
    path = SAMPLES / name / file
    if not path.exists():
        pytest.skip("../shared/data is not here")
    content_type = HTML if file.endswith(".html") else "application/json"
    adapter = load_adapter(name, POLICY)
    (ref,) = adapter.saved(page(path.read_bytes(), content_type))
    assert native_id is None or ref.native_id == native_id
    assert adapter.parse(ref.raw, ref)
