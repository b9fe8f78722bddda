"""Secrets come from where their user keeps them, and reach no text."""

import base64
import html
import json
import os
import traceback
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assets.servers.secrets import LaunchSecrets, SecretError, SecretSources, ServerSecrets
from tests.support.cases import cases
from tests.support.examples import examples, json_values
from warehouse.sanitize.scrubber import Scrubber

SALT = b"0123456789abcdef"
SERVER = "npm:acme"
VALUE = "Sup3r/Secret+Value"


def secrets(**facts) -> SecretSources:
    return SecretSources({SERVER: ServerSecrets(**facts)}, SALT)


def refused(**facts) -> SecretError:
    with pytest.raises(SecretError) as caught:
        secrets(**facts).given(SERVER)
    return caught.value


def private_file(tmp_path, data: bytes, mode: int = 0o600):
    path = tmp_path / "secret"
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_variable_of_that_name_and_a_file_are_read_at_each_launch(monkeypatch, tmp_path):
    monkeypatch.setenv("ACME_TOKEN", VALUE)
    path = private_file(tmp_path, b"from a file\n")
    headers = {"Authorization": "Bearer env:ACME_TOKEN"}
    chosen = secrets(env={"API_KEY": "env:ACME_TOKEN", "PIN": f"file:{path}"}, headers=headers)
    found = chosen.given(SERVER)
    assert found.env == {"API_KEY": VALUE, "PIN": "from a file"}
    assert found.headers == {"Authorization": f"Bearer {VALUE}"}
    monkeypatch.setenv("ACME_TOKEN", "rotated-token")
    assert chosen.given(SERVER).env["API_KEY"] == "rotated-token"
    monkeypatch.setenv("ACME_TOKEN", VALUE)
    assert "rename" in str(refused(env={"A=B": "env:ACME_TOKEN"}))


@cases("mode", 0o640, 0o604, 0o660, 0o644, 0o610)
def test_a_file_that_others_may_read_is_refused_with_the_fix(tmp_path, mode):
    path = private_file(tmp_path, VALUE.encode(), mode)
    error = refused(env={"KEY": f"file:{path}"})
    assert f"chmod 600 {path}" in str(error)
    assert SERVER in str(error)
    assert VALUE not in str(error)


@cases(
    "source, found",
    ("env:NOT_SET_ANYWHERE", "not set"),
    ("file:/no/such/file", "No such file"),
    ("file:.", "Is a directory"),
    (VALUE, "another form"),
    ("vault:x", "another form"),
    ("env:TOO_SHORT", "shorter than 6"),
)
def test_what_cannot_be_had_is_named_without_its_value(monkeypatch, source, found):
    monkeypatch.setenv("TOO_SHORT", "12345")
    error = refused(env={"KEY": source})
    assert found in str(error)
    assert error.fix
    assert VALUE not in str(error)
    assert "12345" not in str(error)


@cases("data", b"\xff\xfe not text", b"", b"\n", b"x" * 70_000)
def test_a_file_that_is_no_secret_is_refused_and_not_quoted(tmp_path, data):
    error = refused(env={"KEY": f"file:{private_file(tmp_path, data)}"})
    shown = "".join(traceback.format_exception(error))
    assert "not text" not in shown
    assert "xxxx" not in shown


@cases(
    "name, value",
    ("X-Key", "abc\r\nX-Admin: 1"),
    ("X-Key", "abc\ndef"),
    ("X-Key", "ключ-ключ"),
    ("X Key", VALUE),
    ("X-Key:", VALUE),
    ("Host", "evil.example"),
    ("Mcp-Session-Id", VALUE),
)
def test_a_header_that_would_inject_another_is_refused(monkeypatch, name, value):
    monkeypatch.setenv("ACME_TOKEN", value)
    assert value not in str(refused(headers={name: "env:ACME_TOKEN"}))


def test_values_are_in_no_repr_and_without_sources_there_are_none():
    found = LaunchSecrets({"API_KEY": VALUE}, {"Authorization": VALUE}, SALT)
    assert VALUE not in f"{found!r} {found}"
    assert SALT.decode() not in repr(found)
    found = SecretSources({}, SALT).given(SERVER)
    assert (found.env, found.headers, found.fingerprint()) == ({}, {}, None)


def test_a_fingerprint_tells_a_rotated_secret_and_nothing_else():
    one = LaunchSecrets({"A": "secret-one"}, {}, SALT)
    assert one.fingerprint() == LaunchSecrets({"A": "secret-one"}, {}, SALT).fingerprint()
    others = [
        LaunchSecrets({"A": "secret-two"}, {}, SALT),
        LaunchSecrets({"B": "secret-one"}, {}, SALT),
        LaunchSecrets({}, {"A": "secret-one"}, SALT),
        LaunchSecrets({"A": "secret-one"}, {}, b"another salt....."),
    ]
    assert len({one.fingerprint(), *(other.fingerprint() for other in others)}) == 5
    assert "secret" not in str(one.fingerprint())
    with pytest.raises(ValueError, match="16"):
        SecretSources({}, b"short")


ENCODINGS = {
    "plain": lambda value: value,
    "quote": lambda value: quote(value, safe=""),
    "quote with slashes": quote,
    "quoted twice": lambda value: quote(quote(value, safe=""), safe=""),
    "form": quote_plus,
    "lower-case quote": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "json": lambda value: json.dumps(value)[1:-1],
    "json with letters": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "json twice": lambda value: json.dumps(json.dumps(value))[3:-3],
    "json then quote": lambda value: quote(json.dumps(value)[1:-1], safe=""),
    "html": html.escape,
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 of a pair": lambda value: base64.b64encode(b"u:" + value.encode()).decode(),
    "base64 within": lambda value: base64.b64encode(b"abc:" + value.encode() + b"!!").decode(),
    "urlsafe base64": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "quoted base64": lambda value: quote(base64.b64encode(value.encode()).decode(), safe=""),
    "hex": lambda value: value.encode().hex(),
}

SECRET = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40)
AROUND = st.text(max_size=12)
KEYS = st.text(max_size=8)


def recoverable(text: str, value: str) -> list[str]:
    """The forms in which a text still holds the whole secret."""
    return [name for name, encode in ENCODINGS.items() if encode(value) in text]


@examples(150)
@given(SECRET, AROUND, AROUND, st.sampled_from(sorted(ENCODINGS)))
def test_no_form_of_a_secret_survives_in_a_text(value, before, after, form):
    text = before + ENCODINGS[form](value) + after
    assert recoverable(Scrubber({"KEY": value}).scrub_text(text), value) == []


def placed(leaf):
    """JSON values with `leaf` somewhere in them, as a value, a key, or both."""
    keys = KEYS | st.just(leaf)
    return json_values(st.none() | st.booleans() | st.integers() | st.just(leaf) | AROUND, keys)


@examples(150)
@given(st.data(), SECRET, st.sampled_from(sorted(ENCODINGS)))
def test_no_secret_survives_in_any_json_position(data, value, form):
    found = data.draw(placed(ENCODINGS[form](value)))
    clean = LaunchSecrets({"KEY": value}, {}, SALT).scrub({"found": found, value: [value]})
    assert recoverable("\0".join(texts(clean)), value) == []


def texts(value) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value if isinstance(value, str) else repr(value)]


@examples(60)
@given(SECRET, SECRET, AROUND)
def test_secrets_within_each_other_both_go(one, two, between):
    assume(one != two)
    scrub = Scrubber({"A": one, "B": one + two, "C": two})
    clean = scrub.scrub_text(f"{one}{two}{between}{two}{one}")
    assert recoverable(clean, one) == recoverable(clean, two) == []


@examples(100)
@given(placed("nothing secret"))
def test_what_holds_no_secret_is_left_as_it_is(value):
    assert Scrubber({"KEY": "zq8#Kw!0vX"})(value) == value


@cases("value", "[secret KEY]", "secret KEY", "[redacted]", "secret")
def test_a_secret_that_stands_in_its_own_label_goes_too(value):
    assert value not in Scrubber({"KEY": value}).scrub_text(f"a {value} b")


def test_numbers_keys_parts_of_them_and_tokens_are_found_however_deep():
    basic = base64.b64encode(b"me:open sesame").decode()
    named = {"PIN": "12345678", "Authorization": "Bearer tok-en-1", "Proxy": f"Basic {basic}"}
    scrub = Scrubber(named)
    clean = scrub({"n": 12345678, "x": 9.123456785, "tok-en-1": "tok-en-1", "p": "open sesame"})
    labels = ["[secret PIN]", "9.[secret PIN]5", "[secret Authorization]", "[secret Proxy]"]
    assert clean == dict(zip(("n", "x", labels[2], "p"), labels, strict=True))
    assert scrub([True, None, 7]) == [True, None, 7]
    assert len(Scrubber({"K": "secret-a", "L": "secret-a"})({"secret-a": 1, "[secret K]": 2})) == 2
    key = base64.b64encode(os.urandom(900)).decode()
    clean = Scrubber({"PEM": key}).scrub_text(f"<{key[:700]}>")
    assert key[:128] not in clean
    assert key[256:384] not in clean
    value: object = "the-secret"
    for _ in range(5_000):
        value = [value]
    clean = Scrubber({"K": "the-secret"})(value)
    while isinstance(clean, list):
        clean = clean[0]
    assert clean == "[secret K]"
