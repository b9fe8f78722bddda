"""The site's world: a web site at a socket, which only the server that is granted it is led to."""

import http.client
import json
import socket
import time
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.worlds.catalogue import find_world
from assets.outcomes.worlds.session import open_world
from assets.outcomes.worlds.site import HOST, SiteItems, SiteState
from assets.outcomes.worlds.site import generate_shop_site as generate
from assets.outcomes.worlds.tree import WorldFileError
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.policy import DeployPolicy
from tests.outcomes.running import make_contract, open_executing
from tests.serving.calling import PATIENT, Bench, read_text
from tests.support.cases import cases
from tests.support.untrusted_server import POLICY
from warehouse.storage.digest import canonical_json

WORLD = find_world("web-shop")


@contextmanager
def opened_site(folder):
    folder.mkdir(exist_ok=True)
    state = SiteState(folder, generate(Random("x"), 6))
    try:
        yield state
    finally:
        state.close()


def ask(state, method, path, body=None):
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(state.sites[0].socket))
    connection = http.client.HTTPConnection(HOST)
    connection.sock = line
    connection.request(method, path, json.dumps(body) if body else None)
    with connection.getresponse() as reply:
        return reply.status, reply.read()


def test_a_site_is_reset_whatever_was_sent_to_it(tmp_path):
    with open_world(WORLD, 1, tmp_path) as opened:
        first = opened.digest_state()
        assert not opened.grant.folders[0].writable
        for method, path, body in (
            ("POST", "/api/cart", {"product_id": 1, "quantity": 2}),
            ("PATCH", "/api/products/1", {"stock": 0}),
            ("DELETE", "/api/orders/1", None),
        ):
            assert ask(opened._state, method, path, body)[0] in (200, 201)
        assert opened.read_facts()["cart/1"] == {"id": 1, "product_id": 1, "quantity": 2}
        assert opened.digest_state() != first
        opened.reset()
        assert opened.digest_state() == first
        assert ask(opened._state, "GET", "/api/cart") == (200, b"[]")
        path = opened.grant.sites[0].socket
    assert not path.exists()


def test_a_seed_decides_a_site_and_its_tasks(tmp_path):
    states = []
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        with open_world(WORLD, seed, tmp_path / place) as opened:
            tasks = opened.tasks(1, 2)
            assert {task.name for task in tasks} == {task.name for task in WORLD.tasks}
            assert not any(task.check(opened.read_facts()) for task in tasks)
            states.append(opened.digest_state())
    assert states[0] == states[1] != states[2]


def test_seed_files_that_are_no_items_are_told(tmp_path):
    twice, huge = b'[{"id": 1}, {"id": "1"}]', b'[{"id": 1, "price": 1e999}]'
    for text in (b"{", b"7", b'[{"name": 1}]', b"[1]", twice, huge):
        with pytest.raises(WorldFileError, match=r"api/cart\.json"):
            SiteState(tmp_path, {"api/cart.json": text})
    with pytest.raises(WorldFileError, match="`page` is taken for pages"):
        SiteState(tmp_path, {"api/page.json": b"[]"})


ASK = """
import urllib.request
def do(m, x):
    url = m["params"]["arguments"]["how"]
    try:
        say(m, urllib.request.urlopen(url, timeout=60).read(200).decode())
    except Exception as error:
        say(m, f"{type(error).__name__}: {error}", isError=True)
calls(do)
"""


async def test_only_the_server_that_is_granted_a_site_reaches_it(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    page, api = f"http://{HOST}/robots.txt", f"http://{HOST}/api/cart"
    with opened_site(tmp_path / "site") as state:
        grants = {"npm:x": ServerGrant(sites=state.sites)}
        policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=grants)
        async with bench.launch(ASK, policy=policy) as running:
            assert "User-agent" in read_text(await running.call(1, how=page))
            assert read_text(await running.call(1, how=api)) == "[]"
            for other in ("http://127.0.0.1:9/", "http://169.254.0.1/", "http://other.example/"):
                refused = await running.call(1, how=other)
                assert (refused.status, refused.blame) == ("tool_error", "policy"), other
            missing = await running.call(1, how=f"http://{HOST}/none")
            assert "404" in read_text(missing)
            assert missing.reached == (HOST,)
        async with bench.launch(ASK, policy=policy, recipe={"name": "other"}) as running:
            refused = await running.call(1, how=page)
            assert (refused.status, refused.blame) == ("tool_error", "policy")


async def test_a_call_that_waits_for_its_site_is_laid_to_the_site(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    answer = SiteItems.answer

    def answer_late(*request):
        time.sleep(3)
        return answer(*request)

    monkeypatch.setattr(SiteItems, "answer", answer_late)
    with opened_site(tmp_path / "site") as state:
        grants = {"npm:x": ServerGrant(sites=state.sites)}
        policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=grants)
        async with bench.launch(ASK, policy=policy) as running:
            slow = await running.call(1, how=f"http://{HOST}/robots.txt", timeout_s=1.0)
    assert (slow.error_kind, slow.blame) == ("timeout_host", "upstream")
    assert "site.example:80" in str(slow.hint)


SHOP = """
import urllib.request
def do(m, x):
    if x == 1:
        url, body = "http://site.example/api/cart", b'{"product_id": 3}'
    else:
        url, body = "http://site.example/news/1", None
    say(m, urllib.request.urlopen(urllib.request.Request(url, body), timeout=60).read().decode())
calls(do, TOOLS)
"""


def test_executed_calls_change_their_site_and_reads_leave_no_trace(tmp_path, monkeypatch):
    executing, contract = open_executing(tmp_path, monkeypatch), make_contract()
    server = executing.make_server(SHOP, [contract])
    jobs = [executing.make_job(server, contract, {"x": x}) for x in (1, 2)]
    rows = executing.run([replace(job, world=WORLD) for job in jobs])
    output = {row["arguments"]: (row["outcome"], row["changed"]) for row in rows}
    assert output == {'{"x":1}': ("useful", '["cart/1"]'), '{"x":2}': ("useful", "[]")}


JSON, FORM = "application/json", "application/x-www-form-urlencoded"
LAMP = {"id": 3, "name": "Lamp <b>", "price": 12.5}


def make_site() -> SiteItems:
    pages = {"index.html": b"<h1>Hello</h1>", "robots.txt": b"User-agent: *\n"}
    return SiteItems(pages, {"products": {"3": dict(LAMP)}, "cart": {}})


def send(
    site: SiteItems, method: str, path: str, body: object = None, kind: str = JSON, query: str = ""
):
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    reply = site.answer(method, path, query, sent, kind)
    return reply.status, json.loads(reply.body) if reply.kind == JSON else reply.body.decode()


def test_items_are_pages_and_json_and_are_added_changed_and_removed_until_a_reset():
    site = make_site()
    for path in ("/", "/index", "/index.html"):
        assert send(site, "GET", path) == (200, "<h1>Hello</h1>")
    assert send(site, "GET", "/api/products/3") == (200, LAMP)
    assert send(site, "GET", "/api/products", query="price=12.5&page=2") == (200, [LAMP])
    assert send(site, "GET", "/api/products", query="price=13") == (200, [])
    status, page = send(site, "GET", "/products/3")
    assert (status, "price: 12.5" in page, "Lamp &lt;b&gt;" in page) == (200, True, True)
    assert '<a href="/products/3">' in send(site, "GET", "/products")[1]
    site = make_site()
    first = site.copy_items()
    assert send(site, "POST", "/api/cart", {"product_id": 3}) == (201, {"id": 1, "product_id": 3})
    form = b"product_id=4&note=a+gift"
    added = {"id": 2, "product_id": 4, "note": "a gift"}
    assert send(site, "POST", "/cart", form, FORM)[1] == added
    assert send(site, "PATCH", "/api/products/3", {"price": 9})[1] == {**LAMP, "price": 9}
    lamp = {"name": "Lamp", "id": 8}
    assert send(site, "PUT", "/api/products/3", lamp)[1] == {"name": "Lamp", "id": 3}
    assert send(site, "DELETE", "/api/cart/1")[0] == 200
    assert list(site.copy_items()["cart"]) == ["2"]
    site.reset()
    assert site.copy_items() == first


@cases(
    "method, path, body, status",
    ("GET", "/nowhere", None, 404),
    ("GET", "/api/robots.txt", None, 404),
    ("GET", "/api/products/9", None, 404),
    ("GET", "/../../etc/passwd", None, 404),
    ("POST", "/", {}, 405),
    ("POST", "/api/nothing", {}, 404),
    ("POST", "/api/products/3", {}, 405),
    ("DELETE", "/api/products", None, 405),
    ("POST", "/api/cart", [1], 400),
    ("POST", "/api/cart", b"{", 400),
    ("POST", "/api/cart", {"a": {"b": 1}}, 400),
    ("POST", "/api/cart", {"a": "x" * 5000}, 400),
    ("POST", "/api/cart", b'{"a": 1e999}', 400),
    ("POST", "/api/cart", b'{"a": 9007199254740993}', 400),
    ("POST", "/api/cart", b'{"a": "\\ud800"}', 400),
    ("POST", "/api/cart", {"id": "a/b"}, 400),
    ("POST", "/api/cart", {str(n): n for n in range(21)}, 400),
    ("POST", "/api/cart", b"[" * 60_000, 400),
    ("POST", "/api/cart", b"x" * 70_000, 413),
    ("POST", "/api/products", {"id": 3}, 409),
)
def test_what_is_refused_changes_nothing(method, path, body, status):
    site = make_site()
    first = site.copy_items()
    assert send(site, method, path, body)[0] == status
    assert site.copy_items() == first


def test_a_collection_does_not_grow_without_end():
    site = make_site()
    statuses = {send(site, "POST", "/api/cart", {"n": n})[0] for n in range(501)}
    assert (statuses, len(site.copy_items()["cart"])) == ({201, 409}, 500)
    statuses = [
        send(site, "PATCH", "/api/products/3", {f"{at}-{n}": "x" * 3000 for n in range(10)})[0]
        for at in range(9)
    ]
    assert (statuses[0], set(statuses[2:])) == (200, {409})
    assert len(site.copy_items()["products"]["3"]) < 25
    site = make_site()  # the largest id is not counted on from
    assert send(site, "POST", "/api/cart", {"id": 2**53 - 1})[0] == 201
    assert send(site, "POST", "/api/cart", {"note": "next"}) == (201, {"id": 1, "note": "next"})
    canonical_json(site.copy_items())


@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]),
    path=st.text(alphabet="/apicrt.%3\x00é", max_size=20),
    query=st.text(max_size=20),
    body=st.binary(max_size=40)
    | st.sampled_from([b"{}", b'{"a":NaN}', b'{"id":null}', b"a=%ED%A0%80&b=1"]),
    kind=st.sampled_from([JSON, FORM, ""]),
)
def test_whatever_is_sent_is_answered(method, path, query, body, kind):
    site = make_site()
    assert 200 <= site.answer(method, path, query, body, kind).status < 500
    canonical_json(site.copy_items())
