"""A site's answers: pages, items as pages and as JSON, what changes them, and what it refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.worlds.site import SiteItems
from warehouse.storage.digest import canonical_json

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
LAMP = {"id": 3, "name": "Lamp <b>", "price": 12.5}


def make_site() -> SiteItems:
    pages = {"index.html": b"<h1>Hello</h1>", "robots.txt": b"User-agent: *\n"}
    return SiteItems(pages, {"products": {"3": dict(LAMP)}, "cart": {}})


def ask(
    site: SiteItems, method: str, path: str, body: object = None, kind: str = JSON, query: str = ""
):
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    reply = site.answer(method, path, query, sent, kind)
    return reply.status, json.loads(reply.body) if reply.kind == JSON else reply.body.decode()


@pytest.mark.parametrize("path", ["/", "/index", "/index.html"])
def test_a_page_is_found_with_and_without_its_ending(path):
    assert ask(make_site(), "GET", path) == (200, "<h1>Hello</h1>")


def test_items_are_pages_and_json():
    site = make_site()
    assert ask(site, "GET", "/api/products/3") == (200, LAMP)
    assert ask(site, "GET", "/api/products", query="price=12.5&page=2") == (200, [LAMP])
    assert ask(site, "GET", "/api/products", query="price=13") == (200, [])
    status, page = ask(site, "GET", "/products/3")
    assert (status, "price: 12.5" in page, "Lamp &lt;b&gt;" in page) == (200, True, True)
    assert '<a href="/products/3">' in ask(site, "GET", "/products")[1]


def test_items_are_added_changed_and_removed_and_a_reset_forgets_it():
    site = make_site()
    first = site.copy_items()
    assert ask(site, "POST", "/api/cart", {"product_id": 3}) == (201, {"id": 1, "product_id": 3})
    form = b"product_id=4&note=a+gift"
    assert ask(site, "POST", "/cart", form, FORM)[1] == {"id": 2, "product_id": 4, "note": "a gift"}
    assert ask(site, "PATCH", "/api/products/3", {"price": 9})[1] == {**LAMP, "price": 9}
    lamp = {"name": "Lamp", "id": 8}
    assert ask(site, "PUT", "/api/products/3", lamp)[1] == {"name": "Lamp", "id": 3}
    assert ask(site, "DELETE", "/api/cart/1")[0] == 200
    assert list(site.copy_items()["cart"]) == ["2"]
    site.reset()
    assert site.copy_items() == first


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
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
    ],
)
def test_what_is_refused_changes_nothing(method, path, body, status):
    site = make_site()
    first = site.copy_items()
    assert ask(site, method, path, body)[0] == status
    assert site.copy_items() == first


def test_a_collection_does_not_grow_without_end():
    site = make_site()
    statuses = {ask(site, "POST", "/api/cart", {"n": n})[0] for n in range(501)}
    assert (statuses, len(site.copy_items()["cart"])) == ({201, 409}, 500)
    statuses = [
        ask(site, "PATCH", "/api/products/3", {f"{at}-{n}": "x" * 3000 for n in range(10)})[0]
        for at in range(9)
    ]
    assert statuses[0] == 200
    assert set(statuses[2:]) == {409}
    assert len(site.copy_items()["products"]["3"]) < 25
    site = make_site()  # the largest id is not counted on from
    assert ask(site, "POST", "/api/cart", {"id": 2**53 - 1})[0] == 201
    assert ask(site, "POST", "/api/cart", {"note": "next"}) == (201, {"id": 1, "note": "next"})
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
