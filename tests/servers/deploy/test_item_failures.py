"""No listing and no bundle fails its marketplace: whatever it holds, it has a row."""

import io
import json
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, PackageRef, make_row, read_rows
from assets.servers.defs import DEPLOYMENTS_AUDIT
from assets.servers.deploy.deploy import deploy as deploy_recipe
from assets.servers.deploy.deployment_table import DEPLOYMENTS, deploy_listings
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import KINDS, PackageError
from assets.servers.recipes.recipe import ResolvedVersion, normalise_address
from assets.servers.sandbox.spec import SandboxUnavailable
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.untrusted_server import CONVERSATION, POLICY, require_sandbox
from warehouse.audit import audit
from warehouse.home import HomeUnavailable
from warehouse.store import Warehouse

ODD = ("", "\0", "{port}", "\ud800", "x" * 300, "\u202e", "-", "../..", "%s", "${HOME}", "é\n")
texts = st.sampled_from(ODD) | st.text(max_size=4)
words = st.lists(texts, max_size=3).map(tuple)
addresses = texts | st.sampled_from(
    (
        *("http://localhost:{port}/mcp", "https://h.example:{port}/mcp", "http://[::1/mcp"),
        *("http://h.example:99999/", "http://user:pw@h.example:x/", "https://[", "http://\ud800"),
    )
)
inputs = {"name": texts, "required": st.booleans(), "default": st.none() | texts}
packages = st.builds(
    PackageRef,
    type=st.sampled_from(("npm", "pypi", "mcpb", "oci", "nuget")),
    identifier=texts | addresses,
    version=st.none() | texts,
    digest=st.none() | st.just("sha256:" + "0" * 64),
)
listings = st.builds(
    Listing,
    marketplace=st.just("registry"),
    native_id=st.text(min_size=1, max_size=4),
    name=texts,
    transport=st.sampled_from((None, "stdio", "streamable-http", "sse")),
    command=st.none() | texts,
    args=words,
    env=st.lists(st.builds(EnvVar, **inputs), max_size=2).map(tuple),
    url=st.none() | addresses,
    headers=st.lists(st.builds(HeaderVar, **inputs), max_size=2).map(tuple),
    package=st.none() | packages,
    flags=st.sampled_from(((), ("hosted_gateway",))),
    runnable=st.booleans(),
    reason=st.none() | texts,
)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("item")
    held = Warehouse(home=root / "home", state=root / "state")
    yield held
    held.ledger.close()


def run(stores, found, *, resolve=None, policy=None, now=0.0, previous=(), **facts):
    return deploy_listings(
        found,
        previous,
        replace(DeployPolicy(stores.home, POLICY, CONVERSATION, twice=False), **(policy or {})),
        ledger=stores.ledger,
        blobs=stores.blobs,
        run_date="n1",
        now=now,
        resolve=resolve,
        **facts,
    )


def resolve_nothing(package):
    raise PackageError("not_found", f"no {package.identifier[:40]}")


def check_rows(made, found):
    """Every server has one row that the table takes and that says what happened."""
    frame = DEPLOYMENTS.frame(made.rows)
    assert bool(len(frame)) == bool(found)
    assert set(frame["error_kind"].drop_nulls()) <= set(KINDS)
    assert frame["launch_digest"].str.contains("^[0-9a-f]{64}$").all()
    return frame


@examples(20)
@given(st.lists(listings, max_size=3))
def test_any_listings_have_rows(stores, found):
    check_rows(run(stores, found, resolve=resolve_nothing), found)


@examples(15)
@given(st.lists(listings, max_size=3), st.sampled_from(("\ud800", "1", "\0")))
def test_any_listings_that_resolve_have_rows(stores, found, text):
    """Nothing is launched: the toolchain is what the launch stumbles over."""
    made = run(stores, found, resolve=lambda _: ResolvedVersion(text, text), toolchain=object())
    check_rows(made, found)


@cases(
    "url, name",
    ("http://localhost:{port}/mcp", "http://localhost/mcp"),
    ("https://me:pw@H.example:{port}/mcp?k=1", "https://h.example:{port}/mcp"),
    ("https://h.example:8443/mcp/", "https://h.example:8443/mcp"),
    ("http://[::1/mcp?k=1", "http://[::1/mcp"),
)
def test_an_address_to_fill_in_has_a_name(url, name):
    assert normalise_address(url) == name


def pack(manifest: object) -> bytes:
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("manifest.json", text)
        archive.writestr("main.py", "")
    return buffer.getvalue()


def server(**config: object) -> dict:
    command = {"command": "python", "args": ["${__dirname}/main.py"], **config}
    return {"server": {"type": "python", "entry_point": "main.py", "mcp_config": command}}


BUNDLES = {
    "env_list": pack(server(env=["A=1"])),
    "nul": pack(server(args=["a\0b"])),
    "surrogate": pack(json.dumps(server(args=["\ud800"]))),
    "long": pack(server(args=["x" * 200_000])),
    "deep": pack("[" * 20_000),
    "cut": pack(server())[:-30],
    "zlib": pack(server()).replace(b"main.py", b"main.p\xff", 1),
}


def lists_bundles(host, bodies: dict[str, bytes]) -> list[Listing]:
    for name, body in bodies.items():
        host.files[f"/{name}.mcpb"] = body
    return [
        Listing(
            marketplace="registry", native_id=name, name=name, transport="stdio", runnable=True,
            package=PackageRef(type="mcpb", identifier=f"{host.url}/{name}.mcpb"),
        )
        for name in bodies
    ]  # fmt: skip


def test_any_bundle_has_a_row(stores, host):
    require_sandbox()
    found = lists_bundles(host, BUNDLES)
    frame = check_rows(run(stores, found), found)
    assert len(frame) == len(found)
    assert set(frame["status"]) == {"failed"}
    kinds = {row["server_id"].rpartition("/")[2]: row for row in frame.to_dicts()}
    for name, kind, message in (
        ("env_list", "no_recipe", "manifest.json: server.mcp_config.env: "),
        ("nul", "no_recipe", "argument 1: a NUL character"),
        ("surrogate", "no_recipe", "argument 1: half of a surrogate pair"),
        ("long", "no_recipe", "argument 1: 200,000 bytes"),
    ):
        row = kinds[f"{name}.mcpb"]
        assert (row["error_kind"], message in row["hint"]) == (kind, True), row["hint"]
    assert "internal" not in set(frame["error_kind"])
    rules = [rule for rule in DEPLOYMENTS_AUDIT.expectations if rule.columns == ["error_kind"]]
    assert audit(frame, rules).passed


def test_an_unforeseen_error_is_a_row_that_waits_and_counts(stores, host, monkeypatch):
    def fail(recipe, policy, toolchain=None):
        raise RuntimeError("s3cret of a third party")

    monkeypatch.setattr("assets.servers.deploy.deploy.deploy_allowed", fail)
    found = lists_bundles(host, {"one": pack(server())})
    first = run(stores, found)
    (row,) = first.rows
    assert (row["error_kind"], row["attempts"]) == ("internal", 1)
    assert "trace " in row["hint"]
    assert "s3cret" not in str(row)
    assert run(stores, found, now=60.0, previous=first.rows).done == []
    later = run(stores, found, now=2 * 86_400.0, previous=first.rows)
    assert [(row["error_kind"], row["attempts"]) for row in later.rows] == [("internal", 2)]
    assert later.rows[0]["hint"] == row["hint"]
    monkeypatch.setattr("assets.servers.deploy.deploy.deploy_allowed", deploy_recipe)


@cases("error", SandboxUnavailable("bwrap", "absent", ""), HomeUnavailable("x"))
def test_what_fails_every_item_fails_the_run(stores, host, monkeypatch, error):
    def fail(recipe, policy, toolchain=None):
        raise error

    monkeypatch.setattr("assets.servers.deploy.deploy.deploy_allowed", fail)
    with pytest.raises(type(error)):
        run(stores, lists_bundles(host, {"two": pack(server())}), toolchain=find_toolchain())


def test_a_row_that_cannot_be_read_is_a_listing_that_says_so():
    good = make_row(Listing(marketplace="registry", native_id="a", name="a"))
    bad = {**good, "native_id": "b", "package": '{"type":"mcpb","identifier":"x","digest":"../x"}'}
    one, other = read_rows([good, bad])
    assert (one.native_id, one.reason) == ("a", None)
    assert (other.native_id, other.runnable) == ("b", False)
    assert "cannot be read (ValidationError at " in str(other.reason)
