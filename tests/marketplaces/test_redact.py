"""Secrets are taken out of text and JSON; facts and places to fill in stay."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.redact import MARK, is_secret_name, redact, redact_json

ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def token(length: int) -> st.SearchStrategy[str]:
    return st.text(ALNUM, min_size=length, max_size=length)


SECRETS = st.one_of(
    token(40).map("ghp_{}".format),
    token(30).map("sk-{}".format),
    token(40).map("ntn_{}".format),
    token(36).map("hf_{}".format),
    st.tuples(token(20), token(30), token(43)).map(lambda parts: "eyJ{}.{}.{}".format(*parts)),
)
PLACES = st.sampled_from(
    [
        '{{"env": {{"X": "{}"}}}}',
        "Authorization: Bearer {}",
        "https://example.com/mcp?api_key={}&x=1",
        "run --key {} now",
        'const a = "{{\\"k\\":\\"{}\\"}}"',
    ]
)


@given(SECRETS, PLACES)
def test_no_secret_survives_where_it_may_stand(secret: str, place: str) -> None:
    cleaned = redact(place.format(secret))
    assert secret not in cleaned
    assert MARK in cleaned


@given(st.text() | st.builds(lambda s, p: p.format(s), SECRETS, PLACES))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@given(st.recursive(st.text() | SECRETS, lambda x: st.dictionaries(st.text(), x, max_size=3)))
def test_redacted_json_text_still_parses(value: object) -> None:
    json.loads(redact(json.dumps(value)))


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('{"FOO_API_KEY": "plain-value-1"}', "plain-value-1"),
        ("<pre>{&quot;FOO_API_KEY&quot;: &quot;plain-value-1&quot;}</pre>", "plain-value-1"),
        ("{'FOO_SECRET':'plain-value-1'}", "plain-value-1"),
        ('x="{\\"FOO_TOKEN\\":\\"plain-value-1\\"}"', "plain-value-1"),
        ('["run", "--key", "0f8c2d"]', "0f8c2d"),
        ("postgres://me:hunter22@db.example.com/x", "hunter22"),
        ("https://mcp.example.com/8c5b1d3e-1f2a-4b3c-8d9e-0a1b2c3d4e5f/app", "8c5b1d3e"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "MIIE"),
        ("AKIA" + "ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    ],
)
def test_known_forms_are_redacted(text: str, gone: str) -> None:
    assert gone not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "sha256:" + "ab" * 32,
        '{"NOTION_TOKEN": "<YOUR_NOTION_TOKEN>"}',
        "{&quot;NOTION_TOKEN&quot;: &quot;&lt;YOUR_NOTION_TOKEN&gt;&quot;}",
        "Authorization: Bearer {token}",
        '{"name": "API_KEY", "isSecret": true}',
        "npx -y @modelcontextprotocol/server-memory@2026.8.31",
        "https://example.com/a?page=2&limit=100",
    ],
)
def test_facts_and_places_to_fill_in_stay(text: str) -> None:
    assert redact(text) == text


def test_a_value_marked_secret_goes_and_its_name_stays() -> None:
    found = redact_json({"name": "KEY_FILE", "value": "whatever", "isSecret": True})
    assert found == {"name": "KEY_FILE", "value": MARK, "isSecret": True}


@pytest.mark.parametrize("name", ["API_KEY", "Authorization", "githubToken", "DB_PASSWORD", "pat"])
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "AUTHOR", "PORT", "BASE_URL", "KEYBOARD", "monkey"])
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)
