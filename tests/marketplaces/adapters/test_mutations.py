"""Records of every adapter, mutated: none is a crash, and what cannot be run says why."""

from typing import Any

import pytest
from hypothesis import given

from assets.marketplaces.crawl.crawl import load_adapter
from assets.marketplaces.policy import RecordRef
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
from tests.marketplaces.answers import POLICY, check_record, mutations
from tests.support.examples import examples

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
ENTRY = test_private.CONFIG["mcpServers"]["quill"]
RECORDS: list[tuple[str, Any]] = [
    ("registry", test_registry.record("a/b", **SERVER)),
    ("pulsemcp", test_pulsemcp.record("a/b", remotes=test_pulsemcp.REMOTES, version=SIGNED)),
    ("glama", test_glama.connector("a", "api_key")),
    ("glama", test_glama.server("a", **NEEDED)),
    ("smithery", test_smithery.detail(
        test_smithery.SCRIPT, test_smithery.OUTSIDE | {"configSchema": test_smithery.SCHEMA},
        test_smithery.BUNDLE, test_smithery.HOSTED)),
    ("deepnlp", {**test_deepnlp.detail([]), "tools": [{"name": "write", "input_schema": {}}]}),
    ("deepnlp", test_deepnlp.detail([test_deepnlp.config(env={"A_KEY": "x"}), "{}"])),
    ("deepnlp", test_deepnlp.item()),
    ("pipedream", test_pipedream.APP),
    ("docker", test_docker.ENTRY),
    ("private", {"key": "quill", "entry": ENTRY, "secret_inputs": ["x"]}),
    ("mcpso", {"html": test_mcpso.page().decode(), "rendered": None}),
    ("mcphub", {"html": test_mcphub.page().decode(), "rendered": None}),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(RECORDS)))
def test_no_mutation_of_a_record_is_a_crash(at: int) -> None:
    name, record = RECORDS[at]

    @examples(50)
    @given(mutations(record))
    def check(raw: Any) -> None:
        check_record(load_adapter(name, POLICY), raw, RecordRef("a/b", POLICY.base_url))

    check()
