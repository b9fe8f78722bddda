"""Which launches are due; and no listing and no bundle fails its marketplace."""

import io
import json
import shutil
import zipfile
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, PackageRef, make_row, read_rows
from assets.servers.defs import DEPLOYMENTS_AUDIT
from assets.servers.deploy.deployment_table import DEPLOYMENTS, deploy_listings, summarise_rows
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import KINDS, PackageError
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.recipes.recipe import ResolvedVersion, normalise_address
from assets.servers.sandbox.spec import SandboxUnavailable
from assets.servers.sandbox.toolchain import find_toolchain
from demo.server import replicas
from tests.servers.conftest import make_secrets, npm
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.untrusted_server import CONVERSATION, POLICY, require_sandbox
from warehouse.audit import audit
from warehouse.home import HomeUnavailable
from warehouse.store import Warehouse

GOOD = "serve([tool('a'), tool('b')])"
DAY = 86_400.0
ELSEWHERE = "http://127.0.0.1:9"


def deploy_all(stores, listings, previous=(), *, policy=None, **facts):
    usual = DeployPolicy(stores.home, POLICY, CONVERSATION, twice=False)
    about = {"ledger": stores.ledger, "blobs": stores.blobs, "run_date": "n1", "now": 0.0, **facts}
    return deploy_listings(listings, previous, replace(usual, **(policy or {})), **about)


@pytest.fixture
def deploy(warehouse):
    require_sandbox()

    def run(*listings, policy=None, **facts):
        return deploy_all(warehouse, *listings, policy={"twice": True, **(policy or {})}, **facts)

    return run


def _deploys(warehouse):
    return warehouse.ledger.counts().get(("deploy", "done"), 0)


def _digest(run):
    return DEPLOYMENTS.digest(DEPLOYMENTS.frame(run.rows))


def test_a_run_over_good_and_bad_servers(deploy, host, warehouse):
    listings = [
        host.listing("good", GOOD),
        host.listing("twin", GOOD),
        host.listing("hangs", "time.sleep(600)"),
        host.listing("keyed", "sys.exit('API key required')"),
        host.listing("gone", None),
        host.listing("empty", "serve([])"),
        npm("x", native_id="odd", runnable=False, reason="no command", package=None),
    ]
    run = deploy(listings)
    kinds = {row["server_id"].rpartition("/")[2]: row["error_kind"] for row in run.rows}
    assert kinds == {
        **dict.fromkeys(("good.mcpb", "twin.mcpb")),
        "hangs.mcpb": "timeout_start",
        "keyed.mcpb": "needs_secret",
        "gone.mcpb": "not_found",
        "empty.mcpb": "no_tools",
        "listing:registry:odd": "no_recipe",
    }
    assert all(row["hint"] for row in run.rows if row["status"] == "failed")
    assert summarise_rows(run.rows)["tools"] == 4
    tools = [row["tools_blob"] for row in run.rows if row["status"] == "ok"]
    assert warehouse.blobs.get_json(tools[0])[0]["name"] == "a"


def test_what_is_unchanged_is_not_launched_again_and_a_failure_waits(deploy, host, warehouse):
    def listings():
        return [host.listing("a", GOOD), host.listing("keyed", "sys.exit('API key required')")]

    first = deploy(listings())
    effects, requests = warehouse.ledger.counts(), len(host.requests)
    for run_date, now in (("n2", 100.0), ("n2", 6 * DAY)):
        second = deploy(listings(), first.rows, now=now, run_date=run_date)
        assert (second.rows, second.done) == (first.rows, [])
    assert (warehouse.ledger.counts(), len(host.requests)) == (effects, requests)
    again = deploy(listings(), [], now=5.0)  # the rows were lost, the ledger was not
    assert (_digest(again), _deploys(warehouse)) == (_digest(first), 2)
    later = deploy(listings(), first.rows, now=8 * DAY, run_date="n3")
    keyed = next(row for row in later.rows if row["error_kind"])
    assert (keyed["attempts"], len(later.done), keyed["retry_at"] > 20 * DAY) == (2, 1, True)
    assert _digest(later) == _digest(first)  # a failure that stays is no news
    host.url = ELSEWHERE  # another port of the bundles' host
    moved = deploy(listings(), first.rows, now=1.0, run_date="n2")
    assert (moved.done, moved.rows) == ([], first.rows)


def test_only_what_changed_is_launched_again(deploy, host, warehouse):
    first = deploy([host.listing(name, GOOD + "#" * (name == "c")) for name in "abc"])
    assert _deploys(warehouse) == 3
    listings = [host.listing("a", GOOD), host.listing("b", "serve([tool('z')])"),
                host.listing("d", GOOD + "##")]  # fmt: skip
    second = deploy(listings, first.rows, run_date="n2")
    assert [key.rpartition("/")[2] for key in second.done] == ["b.mcpb", "d.mcpb"]
    assert ([key.rpartition("/")[2] for key in second.gone], _deploys(warehouse)) == (["c.mcpb"], 5)


def test_one_recipe_of_two_marketplaces_is_launched_once(deploy, host, warehouse):
    listing = host.listing("a", GOOD)
    first = deploy([listing, listing.model_copy(update={"native_id": "z"})])
    assert [row["listing_id"] for row in first.rows] == ["registry:a"]
    assert deploy([listing.model_copy(update={"marketplace": "mcpso"})]).rows[0]["n_tools"] == 2
    edited = listing.model_copy(update={"description": "New words.", "updated_at": "2026-01-01"})
    assert (deploy([edited], first.rows, run_date="n2").done, _deploys(warehouse)) == ([], 1)


def test_an_unpinned_server_is_asked_for_each_run_and_launched_when_it_moved(deploy, host):
    first = deploy([host.listing("a", GOOD, pinned=False)])
    same = deploy([host.listing("a", GOOD, pinned=False)], first.rows, run_date="n2")
    assert (same.done, len(host.requests)) == ([], 2)
    again = host.listing("a", "serve([tool('c')])", pinned=False)
    assert deploy([again], same.rows, run_date="n3").rows[0]["n_tools"] == 1


def test_a_registry_that_is_down_is_asked_again_the_next_time(deploy):
    down = Mock(side_effect=PackageError("fetch_failed", "no route"))
    first = deploy([npm("pkg")], resolve=down)
    assert first.rows[0]["error_kind"] == "fetch_failed"
    deploy([npm("pkg")], first.rows, now=1.0, resolve=down)
    assert down.call_count == 2


def test_a_server_that_wants_a_folder_or_its_transport_gets_it_and_progress_is_told(deploy, host):
    folder = "serve([tool('a')]) if os.path.isdir(sys.argv[-1]) else sys.exit('Usage: x DIRECTORY')"
    stdio = "serve([tool('a')]) if 'stdio' in sys.argv else sys.exit('usage: x {stdio,http}')"
    progress = Mock()
    listed = [host.listing("folder", folder), host.listing("stdio", stdio)]
    run = deploy(listed, progress=progress)
    updates = [(*call.args, call.kwargs["ok"]) for call in progress.update.call_args_list]
    assert updates == [("deployments", 1, 2, 1), ("deployments", 2, 2, 2)]
    assert [row["error_kind"] for row in run.rows] == [None, None]
    assert [row["placeholders"] for row in run.rows] == ['["arg:0"]', '["arg:0"]']


def test_a_damaged_bundle_in_the_cache_is_fetched_again(deploy, host, warehouse):
    listing = host.listing("a", GOOD)
    deploy([listing])
    (kept,) = (warehouse.home / "cache" / "bundles").iterdir()
    kept.write_bytes(b"damaged")
    (artifact,) = (warehouse.home / "artifacts").iterdir()
    (artifact / "toolmill.json").unlink()
    shutil.rmtree(artifact)
    run = deploy([listing.model_copy(update={"args": ("--again",)})], run_date="n2")
    assert (run.rows[0]["error_kind"], len(host.requests)) == (None, 2)


def test_another_grant_or_secret_makes_a_server_due(deploy, host, warehouse, monkeypatch):
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    listing = host.listing("keyed", "serve([tool('a')])")
    first = deploy([listing])
    name = first.rows[0]["server_id"]
    given = {"secrets": make_secrets(name, KEY="env:MY_KEY")}
    second = deploy([listing], first.rows, run_date="n2", policy=given)
    assert second.done == [name]
    assert deploy([listing], second.rows, run_date="n3", policy=given).done == []
    monkeypatch.setenv("MY_KEY", "another-secret")
    third = deploy([listing], second.rows, run_date="n4", policy=given)
    assert (third.done, third.rows[0]["attempts"]) == ([name], 1)
    assert deploy([listing], third.rows, run_date="n5").done == [name]
    assert _digest(third) == _digest(first)


def test_a_remote_server_is_asked_in_every_run(deploy, warehouse):
    with replicas(scale="small", sites=["files"]) as running:
        url = f"{running['files']}/mcp"
        listing = npm("glossary", package=None, url=url, transport="streamable-http")
        asks = {"remote": RemotePolicy(allow_loopback=True)}
        assert deploy([listing]).rows[0]["error_kind"] == "policy_denied"
        first = deploy([listing], policy=asks)
        assert (first.rows[0]["status"], first.rows[0]["n_tools"]) == ("ok", 2), first.rows[0]
        again = deploy([listing], first.rows, policy=asks)  # the same run date: after a kill
        next_run = deploy([listing], again.rows, run_date="n2", policy=asks)
        assert warehouse.ledger.counts()["remote", "done"] == 2
        assert _digest(next_run) == _digest(first)
        assert (first.rows[0]["certified"], first.rows[0]["behaviour"]) == (None, "[]")
    down = deploy([listing], next_run.rows, run_date="n3", policy=asks)
    assert (down.rows[0]["status"], down.rows[0]["error_kind"]) == ("failed", "remote_down")


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


RESOLVE_NOTHING = Mock(side_effect=PackageError("not_found", "no such package"))


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
    check_rows(deploy_all(stores, found, resolve=RESOLVE_NOTHING), found)


@examples(15)
@given(st.lists(listings, max_size=3), st.sampled_from(("\ud800", "1", "\0")))
def test_any_listings_that_resolve_have_rows(stores, found, text):
    """Nothing is launched: the toolchain is what the launch stumbles over."""
    known = {"resolve": lambda _: ResolvedVersion(text, text), "toolchain": object()}
    made = deploy_all(stores, found, **known)
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
    at = f"{host.url}/{{}}.mcpb".format
    return [npm(name, package=PackageRef(type="mcpb", identifier=at(name))) for name in bodies]


def test_any_bundle_has_a_row(stores, host):
    require_sandbox()
    found = lists_bundles(host, BUNDLES)
    frame = check_rows(deploy_all(stores, found), found)
    assert (len(frame), set(frame["status"])) == (len(found), {"failed"})
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
    def fail(*_, **__):
        raise RuntimeError("s3cret of a third party")

    monkeypatch.setattr("assets.servers.deploy.deploy.deploy_allowed", fail)
    found = lists_bundles(host, {"one": pack(server())})
    first = deploy_all(stores, found)
    (row,) = first.rows
    assert (row["error_kind"], row["attempts"], "trace " in row["hint"]) == ("internal", 1, True)
    assert "s3cret" not in str(row)
    assert deploy_all(stores, found, first.rows, now=60.0).done == []
    later = deploy_all(stores, found, first.rows, now=2 * 86_400.0)
    assert [(row["error_kind"], row["attempts"]) for row in later.rows] == [("internal", 2)]
    assert later.rows[0]["hint"] == row["hint"]


@cases("error", SandboxUnavailable("bwrap", "absent", ""), HomeUnavailable("x"))
def test_what_fails_every_item_fails_the_run(stores, host, monkeypatch, error):
    fail = Mock(side_effect=error)
    monkeypatch.setattr("assets.servers.deploy.deploy.deploy_allowed", fail)
    found = lists_bundles(host, {"two": pack(server())})
    with pytest.raises(type(error)):
        deploy_all(stores, found, toolchain=find_toolchain())


def test_a_row_that_cannot_be_read_is_a_listing_that_says_so():
    good = make_row(Listing(marketplace="registry", native_id="a", name="a"))
    bad = {**good, "native_id": "b", "package": '{"type":"mcpb","identifier":"x","digest":"../x"}'}
    one, other = read_rows([good, bad])
    assert (one.native_id, one.reason) == ("a", None)
    assert (other.native_id, other.runnable) == ("b", False)
    assert "cannot be read (ValidationError at " in str(other.reason)
