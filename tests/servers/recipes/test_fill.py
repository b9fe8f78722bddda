"""Places that a listing leaves open, filled in and recorded, or left out."""

import pytest

from assets.marketplaces.listing import EnvVar, HeaderVar
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe_plan import (
    fill_address,
    fill_arguments,
    fill_environment,
    fill_headers,
)


@pytest.mark.parametrize(
    ("args", "filled", "made_up"),
    [
        (("--root={dir:filepath}", "--fast"), (f"--root={DATA}", "--fast"), ("arg:0",)),
        (("/Users/jane/docs",), (DATA,), ("arg:0",)),
        (("--dir=~/notes",), (f"--dir={DATA}",), ("arg:0",)),
        (("${input:vaultPath}",), (DATA,), ("arg:0",)),
        (("--api-url", "https://connection.YOUR_REGION.example.com"),
         ("--api-url", "https://connection.placeholder.example.com"), ("arg:1",)),
        (("--api-key", "<YOUR_API_KEY>"),
         ("--api-key", "placeholder0placeholder0placeholder0plac"), ("arg:1",)),
        (("--fast", "https://api.example.com"), ("--fast", "https://api.example.com"), ()),
    ],
)  # fmt: skip
def test_places_in_arguments(args, filled, made_up) -> None:
    assert fill_arguments(args) == (filled, made_up)


@pytest.mark.parametrize(
    ("args", "left"),
    [
        (("--api-key", "<YOUR_KEY>", "--fast"), ("--fast",)),
        (("--root={dir:filepath}", "x"), ("x",)),
        (("~/notes",), ()),
        (("a", "b"), ("a", "b")),
    ],
)
def test_without_placeholders_what_needs_one_is_left_out(args, left) -> None:
    assert fill_arguments(args, placeholders=False) == (left, ())


def test_variables_are_needed_spare_given_or_left_out() -> None:
    variables = (
        EnvVar(name="KEY", secret=True),
        EnvVar(name="HOST", required=True),
        EnvVar(name="REGION"),
        EnvVar(name="LEVEL", default="warn"),
        EnvVar(name="HOME_DIR", default="/Users/jane/x"),
        EnvVar(name="a b", required=True),
    )
    env, spare, made_up = fill_environment(variables)
    assert dict(env).keys() == {"KEY", "HOST", "LEVEL", "HOME_DIR"}
    assert dict(env)["HOME_DIR"] == DATA
    assert dict(spare) == {"REGION": "us-east-1"}
    assert made_up == ("env:HOME_DIR", "env:HOST", "env:KEY", "env:REGION")
    assert fill_environment(variables, placeholders=False) == ((("LEVEL", "warn"),), (), ())


def test_headers_carry_a_secret_as_the_listing_says() -> None:
    headers = (
        HeaderVar(name="Authorization", required=True, secret=True),
        HeaderVar(name="X-Token", secret=True, description="Linear (sent as 'Key {api_key}')"),
        HeaderVar(name="X-App", default="zoom"),
        HeaderVar(name="X-Optional"),
        HeaderVar(name="bad name", required=True),
    )
    sent, made_up = fill_headers(headers)
    named = dict(sent)
    assert named["Authorization"].startswith("Bearer placeholder")
    assert named["X-Token"].startswith("Key lin_api_placeholder")
    assert named["X-App"] == "zoom"
    assert named.keys() == {"Authorization", "X-Token", "X-App"}
    assert made_up == ("header:Authorization", "header:X-Token")
    assert fill_headers(headers, placeholders=False) == ((("X-App", "zoom"),), ())


def test_a_header_never_holds_a_line_break() -> None:
    headers = (
        HeaderVar(name="X", required=True, default="a\r\nEvil: 1"),
        HeaderVar(name="RSA_PRIVATE_KEY", required=True),
    )
    sent, _ = fill_headers(headers)
    assert all("\n" not in value and "\r" not in value for _, value in sent)


def test_a_place_in_an_address_leads_to_no_other_host() -> None:
    url, made_up = fill_address("https://{tenant}.example.com/{base_url}/mcp?key={api_key}")
    assert url is not None
    assert url.startswith("https://00000000-0000-4000-8000-000000000000.example.com/")
    assert "{" not in url
    assert "://" not in url[8:]
    assert made_up == ("url:api_key", "url:base_url", "url:tenant")
    assert fill_address("https://{x}.example.com", placeholders=False) == (None, ())
    assert fill_address("https://a.org/mcp", placeholders=False) == ("https://a.org/mcp", ())
