"""Docker's catalogue and server.yaml files, and YAML that would do harm."""

from typing import Any

import pytest

from assets.marketplaces.adapters.docker import DockerAdapter
from assets.marketplaces.listing import PackageRef
from assets.marketplaces.policy import CrawlError, RecordRef
from tests.marketplaces.answers import POLICY, Answers, read, read_inputs
from tests.support.cases import cases

ADAPTER = DockerAdapter(POLICY)
DIGEST = "sha256:" + "ab" * 32
URL = f"{POLICY.base_url}/mcp/catalog/v3/catalog.json"
ENTRY: dict[str, Any] = {
    "title": "Quill",
    "description": "Writes.",
    "type": "server",
    "image": f"mcp/quill@{DIGEST}",
    "source": "https://github.com/acme/quill/tree/abc",
    "upstream": "https://github.com/acme/quill",
    "secrets": [
        {"name": "quill.token", "env": "QUILL_TOKEN", "example": "<T>", "required": True},
        {"name": "quill.spare", "env": "SPARE_KEY", "required": False},
    ],
    "env": [
        {"name": "MODE", "value": "fast"},
        {"name": "SITE", "value": "{{quill.site}}"},
        {"name": "REGION", "value": "{{quill.region}}"},
    ],
    "config": [{"name": "quill", "type": "object", "required": ["site"],
                "properties": {"site": {"type": "string"}, "region": {"type": "string"}}}],
}  # fmt: skip


def one(entry: dict[str, Any]) -> Any:
    (found,) = read(ADAPTER, entry, "quill")
    return found


def test_an_image_is_run_with_its_variables_passed_on_by_name_and_oauth_needs_an_account():
    found = one(ENTRY)
    assert (found.native_id, found.name) == ("quill", "Quill")
    assert found.repository == "https://github.com/acme/quill"
    env = {
        "MODE": (False, False, "fast"),
        "QUILL_TOKEN": (True, True, None),
        "REGION": (False, False, None),
        "SITE": (True, False, None),
        "SPARE_KEY": (False, True, None),
    }
    assert read_inputs(found.env) == env
    named = [word for name in env for word in ("-e", name)]
    image = f"mcp/quill@{DIGEST}"
    assert (found.command, *found.args) == ("docker", "run", "-i", "--rm", *named, image)
    assert found.package == PackageRef(type="oci", identifier="mcp/quill", digest=DIGEST)
    assert found.flags == ("needs_account", "placeholder")
    provider = {"provider": "quill", "secret": "quill.token", "env": "QUILL_TOKEN"}
    found = one({"remote": {"url": "https://q.example/mcp"}, "oauth": {"providers": [provider]}})
    assert found.flags == ("needs_account",)
    assert read_inputs(found.env) == {"QUILL_TOKEN": (True, True, None)}


@cases("transport", "sse", "streamable-http")
def test_a_remote_keeps_its_transport_and_the_names_of_its_headers(transport):
    remote = {
        "transport_type": transport,
        "url": "https://mcp.quill.example/x",
        "headers": {"Authorization": "Bearer ${QUILL_TOKEN}", "Accept": "text/plain"},
    }
    found = one({"type": "remote", "remote": remote, "secrets": ENTRY["secrets"][:1]})
    assert (found.transport, found.url) == (transport, remote["url"])
    assert read_inputs(found.headers) == {
        "Accept": (False, False, "text/plain"),
        "Authorization": (True, True, None),
    }
    assert "needs_account" in found.flags


@cases(
    "entry, reason",
    ({"type": "poci", "tools": []}, "container of its own"),
    ({"type": "server"}, "no image"),
    ({"type": "server", "image": "$(id)"}, "not an image name"),
    ({"remote": {"url": "file:///etc"}}, "not http(s)"),
)
def test_no_evidence_gives_a_reason(entry, reason):
    found = one(entry)
    assert not found.runnable
    assert reason in found.reason


@cases("image", "mcp/quill", "mcp/quill:latest", "mcp/quill@sha256:abc")
def test_an_image_without_a_digest_or_version_is_unpinned(image):
    assert "unpinned" in one(ENTRY | {"image": image}).flags
    assert "unpinned" not in one(ENTRY | {"image": "mcp/quill:1.2.3"}).flags


def test_the_catalogue_is_one_request_and_complete():
    answers = Answers({URL: {"version": 3, "registry": {"quill": ENTRY, "odd": 7}}})
    (page,) = answers.listed(ADAPTER)
    assert ([ref.native_id for ref in page.refs], page.ended) == (["quill"], True)
    assert [row["native_id"] for row in page.problems] == ["odd"]
    assert answers.asked == [URL]


@cases("body", {}, {"registry": []}, {"registry": {}})
def test_an_empty_catalogue_is_an_error(body):
    with pytest.raises(CrawlError):
        Answers({URL: body}).listed(ADAPTER)


def parameters_of(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    env = [
        {"name": "WRITE", "example": "false", "value": f"{{{{{name}.write}}}}"},
        {"name": "DEEP", "value": f"{{{{{name}.in.deep}}}}"},
        {"name": "SITE", "value": f"https://{{{{{name}.host}}}}/x"},
        {"name": "QUILL_TOKEN", "value": f"{{{{{name}.token}}}}"},
    ]
    return {**ENTRY, "env": env, "secrets": [], "config": [{"name": name, **parameters}]}


@cases("name", "quill", "46quill-sms")
def test_a_parameter_gives_its_variable_the_default_it_states(name):
    stated = {
        "properties": {
            "write": {"type": "boolean", "default": False},
            "host": {"type": "string", "default": "a.example"},
            "token": {"type": "string", "default": "must-not-stay"},
            "in": {"type": "object", "required": ["deep"], "properties": {"deep": {"default": 5}}},
        },
        "required": ["host"],
    }
    listing = ADAPTER.parse(parameters_of(name, stated), RecordRef(name, "x"))[0]
    assert read_inputs(listing.env) == {
        "WRITE": (False, False, "false"),
        "DEEP": (False, False, "5"),  # the object it stands in is not required
        "SITE": (True, False, None),  # a part of a value
        "QUILL_TOKEN": (False, True, None),
    }
    assert "must-not-stay" not in listing.model_dump_json()


@cases("path, folder", ("/src/quill", "src/quill"), ("", None))
def test_the_folder_of_a_repository_is_kept(path, folder):
    url = "https://github.com/acme/many"
    entry = {"name": "q", "image": "mcp/q", "source": f"{url}/tree/abc{path}", "upstream": url}
    listing = ADAPTER.parse(entry, RecordRef("q", "x"))[0]
    assert (listing.repository, listing.subfolder) == (url, folder)
