"""Docker's catalogue and server.yaml files, and YAML that would do harm."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.adapters.docker import DockerAdapter, parse_yaml
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage, RecordRef
from tests.marketplaces.answers import POLICY, Answers, check_reading, mutations, read, saved_page
from tests.support.paths import SHARED

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
    "config": [
        {
            "name": "quill",
            "type": "object",
            "properties": {"site": {"type": "string"}, "region": {"type": "string"}},
            "required": ["site"],
        }
    ],
}
SERVER_YAML = """
name: quill
image: mcp/quill
type: server
about: {title: Quill, description: Writes.}
source:
  project: https://github.com/acme/quill
  commit: 1234567
run:
  command: ["--root", "{{quill.paths|volume-target|into}}"]
  volumes: ["{{quill.paths|volume|into}}", "/Users/me/x:/x"]
  disableNetwork: true
  env: {TZ: UTC}
config:
  secrets:
    - {name: quill.token, env: QUILL_TOKEN, example: YOUR_TOKEN}
  parameters:
    type: object
    properties: {paths: {type: array}}
    required: [paths]
added: 2026-01-02
"""


def one(entry: dict[str, Any]) -> Any:
    (found,) = read(ADAPTER, {"registry": {"quill": entry}})
    return found


def env_of(found: Any) -> dict[str, tuple[bool, bool, str | None]]:
    return {one.name: (one.required, one.secret, one.default) for one in found.env}


def yaml_page(text: str) -> FetchedPage:
    return FetchedPage("server.yaml", "application/yaml", text.encode())


def test_an_image_is_run_with_its_variables_passed_on_by_name() -> None:
    found = one(ENTRY)
    assert (found.native_id, found.name, found.repository) == (
        "quill",
        "Quill",
        "https://github.com/acme/quill",
    )
    named = [word for name in sorted(env_of(found)) for word in ("-e", name)]
    assert (found.command, list(found.args)) == (
        "docker",
        ["run", "-i", "--rm", *named, f"mcp/quill@{DIGEST}"],
    )
    assert found.package.model_dump() == {
        "type": "oci",
        "identifier": "mcp/quill",
        "version": None,
        "digest": DIGEST,
    }
    assert env_of(found) == {
        "MODE": (False, False, "fast"),
        "QUILL_TOKEN": (True, True, None),
        "REGION": (False, False, None),
        "SITE": (True, False, None),
        "SPARE_KEY": (False, True, None),
    }
    assert found.flags == ("needs_account", "placeholder")


def test_a_server_yaml_reads_as_the_catalogue_would_hold_it() -> None:
    (ref,) = ADAPTER.saved(yaml_page(SERVER_YAML))
    (found,) = ADAPTER.parse(ref.raw, ref)
    assert found.args == (
        *("run", "-i", "--rm", "--network", "none", "-e", "QUILL_TOKEN", "-e", "TZ"),
        *("-v", "{quill.paths}", "-v", "/Users/me/x:/x"),
        *("mcp/quill", "--root", "{quill.paths}"),
    )
    assert env_of(found) == {"QUILL_TOKEN": (True, True, None), "TZ": (False, False, "UTC")}
    assert set(found.flags) == {"local_path", "needs_account", "placeholder", "unpinned"}
    assert found.repository == "https://github.com/acme/quill"


@pytest.mark.parametrize(
    "remote", [{"transport_type": "sse"}, {"transport_type": "streamable-http"}]
)
def test_a_remote_keeps_its_transport_and_the_names_of_its_headers(remote: Any) -> None:
    remote |= {
        "url": "https://mcp.quill.example/x",
        "headers": {"Authorization": "Bearer ${QUILL_TOKEN}", "Accept": "text/plain"},
    }
    found = one({"type": "remote", "remote": remote, "secrets": ENTRY["secrets"][:1]})
    assert (found.transport, found.url) == (remote["transport_type"], remote["url"])
    headers = {
        header.name: (header.required, header.secret, header.default) for header in found.headers
    }
    assert headers == {"Authorization": (True, True, None), "Accept": (False, False, "text/plain")}
    assert "needs_account" in found.flags


def test_oauth_needs_an_account() -> None:
    provider = {"provider": "quill", "secret": "quill.token", "env": "QUILL_TOKEN"}
    found = one({"remote": {"url": "https://q.example/mcp"}, "oauth": {"providers": [provider]}})
    assert found.flags == ("needs_account",)
    assert env_of(found) == {"QUILL_TOKEN": (True, True, None)}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"type": "poci", "tools": []}, "container of its own"),
        ({"type": "server"}, "no image"),
        ({"type": "server", "image": "$(id)"}, "not an image name"),
        ({"remote": {"url": "file:///etc"}}, "not http(s)"),
    ],
)
def test_no_evidence_gives_a_reason(entry: dict[str, Any], reason: str) -> None:
    found = one(entry)
    assert not found.runnable
    assert reason in found.reason


@pytest.mark.parametrize("image", ["mcp/quill", "mcp/quill:latest", "mcp/quill@sha256:abc"])
def test_an_image_without_a_digest_or_version_is_unpinned(image: str) -> None:
    assert "unpinned" in one(ENTRY | {"image": image}).flags
    assert "unpinned" not in one(ENTRY | {"image": "mcp/quill:1.2.3"}).flags


def test_the_catalogue_is_one_request_and_complete() -> None:
    answers = Answers({URL: {"version": 3, "registry": {"quill": ENTRY, "odd": 7}}})
    (page,) = answers.listed(ADAPTER)
    assert ([ref.native_id for ref in page.refs], page.ended) == (["quill"], True)
    assert [row["native_id"] for row in page.problems] == ["odd"]
    assert answers.asked == [URL]


def test_the_catalogue_may_be_yaml_and_named_whole() -> None:
    url = "https://market.example/mine/catalog.yaml"
    text = f"registry:\n  quill: {json.dumps(ENTRY)}\n"
    answers = Answers({url: FetchedPage(url, "application/x-yaml", text.encode())})
    (page,) = answers.listed(DockerAdapter(CrawlPolicy(url)))
    assert page.refs[0].raw == ENTRY


@pytest.mark.parametrize("body", [{}, {"registry": []}, {"registry": {}}])
def test_an_empty_catalogue_is_an_error(body: Any) -> None:
    with pytest.raises(CrawlError):
        Answers({URL: body}).listed(ADAPTER)


@pytest.mark.parametrize(
    "payload",
    [
        saved_page([]),
        saved_page({"mcpServers": {}}),
        saved_page({"name": "x", "image": "mcp/x", "description": "another catalogue's"}),
        yaml_page("openapi: 3.1.0\ninfo: {title: x}\n"),
        yaml_page("just text"),
        yaml_page(""),
        yaml_page("<html></html>"),
        yaml_page("a: [1, 2"),
    ],
)
def test_what_docker_does_not_serve_is_refused(payload: FetchedPage) -> None:
    with pytest.raises(CrawlError):
        ADAPTER.saved(payload)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: [*x, *x]",
        "a: &x 1",
        "!!python/object/apply:os.system [id]",
        "[" * 100,
        "[" * 50 + "]" * 50,
        "a: !!binary x",
        "? [1, 2]\n: 3",
        "--- 1\n--- 2",
    ],
)
def test_yaml_that_could_do_harm_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_yaml(text)


def test_yaml_reads_as_json() -> None:
    text = "1: {on: yes, d: 2026-01-02, t: 2026-01-02T03:04:05Z, n: null, s: '01', e: .5}"
    assert json.loads(json.dumps(parse_yaml(text))) == {
        "1": {
            "True": True,
            "d": "2026-01-02",
            "t": "2026-01-02 03:04:05+00:00",
            "n": None,
            "s": "01",
            "e": 0.5,
        }
    }


@given(st.text())
def test_any_yaml_is_read_or_refused(text: str) -> None:
    try:
        value = parse_yaml(text)
    except ValueError:
        pass
    else:
        assert json.loads(json.dumps(value)) == value


@given(mutations({"registry": {"quill": ENTRY}}))
def test_a_mutated_catalogue_is_read_or_refused(value: Any) -> None:
    check_reading(ADAPTER, value)


@given(mutations(parse_yaml(SERVER_YAML)))
def test_a_mutated_server_yaml_is_read_or_refused(value: Any) -> None:
    check_reading(ADAPTER, value)


SAMPLES = SHARED / "marketplaces"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "launched"),
    [
        ("brave.server.yaml", "docker"),
        ("github-official.server.yaml", "docker"),
        ("linear.server.yaml", "https://mcp.linear.app/mcp"),
        ("notion-remote.server.yaml", "https://mcp.notion.com/mcp"),
    ],
)
def test_files_of_the_registry_are_read(name: str, launched: str) -> None:
    file = SAMPLES / "docker-catalog" / name
    if not file.exists():
        pytest.skip("../shared/data is not here")
    (ref,) = ADAPTER.saved(yaml_page(file.read_text()))
    (found,) = ADAPTER.parse(ref.raw, ref)
    assert (found.command or found.url) == launched
    assert "needs_account" in found.flags


def parameters_of(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    env = [
        {"name": "WRITE", "example": "false", "value": f"{{{{{name}.write}}}}"},
        {"name": "DEEP", "value": f"{{{{{name}.in.deep}}}}"},
        {"name": "SITE", "value": f"https://{{{{{name}.host}}}}/x"},
        {"name": "QUILL_TOKEN", "value": f"{{{{{name}.token}}}}"},
    ]
    return {**ENTRY, "env": env, "secrets": [], "config": [{"name": name, **parameters}]}


@pytest.mark.parametrize("name", ["quill", "46quill-sms"])
def test_a_parameter_gives_its_variable_the_default_it_states(name: str) -> None:
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
    env = {one.name: (one.required, one.secret, one.default) for one in listing.env}
    assert env == {
        "WRITE": (False, False, "false"),
        "DEEP": (False, False, "5"),  # the object it stands in is not required
        "SITE": (True, False, None),  # a part of a value
        "QUILL_TOKEN": (False, True, None),
    }
    assert "must-not-stay" not in listing.model_dump_json()


@pytest.mark.parametrize(
    ("entry", "repository", "folder"),
    [
        (
            {"source": "https://github.com/acme/many/tree/abc/src/quill",
             "upstream": "https://github.com/acme/many"},
            "https://github.com/acme/many",
            "src/quill",
        ),
        ({"source": "https://github.com/acme/many/tree/abc"}, "https://github.com/acme/many", None),
        (
            {"about": {"title": "Q"},
             "source": {"project": "https://github.com/acme/many", "directory": "src/quill/"}},
            "https://github.com/acme/many",
            "src/quill",
        ),
    ],
)  # fmt: skip
def test_the_folder_of_a_repository_is_kept(
    entry: dict[str, Any], repository: str, folder: str | None
) -> None:
    listing = ADAPTER.parse({"name": "q", "image": "mcp/q", **entry}, RecordRef("q", "x"))[0]
    assert (listing.repository, listing.subfolder) == (repository, folder)
