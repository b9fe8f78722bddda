"""Tokens files, secrets and limits, without a server."""

import json
from hashlib import sha256

import pytest

from serving.meta.access_control import RequestLimits, TooMany, build_token, find_owner, read_tokens
from serving.meta.policy import ClientToken, HttpSettings, MetaPolicy, TokenError, is_loopback
from tests.support.cases import cases

SECRET = "a-secret-of-some-length"
DIGEST = sha256(SECRET.encode()).hexdigest()
TOML = f"""
[[tokens]]
name = "alice"
sha256 = "{DIGEST}"
allow = ["npm:files::*"]
requests_per_minute = 60

[[tokens]]
name = "ci"
sha256 = "{"0" * 64}"
calls = false
consent = "never"
"""


def test_a_file_in_toml_or_json_names_who_may_what(tmp_path):
    (tmp_path / "tokens.toml").write_text(TOML)
    alice, ci = read_tokens(tmp_path / "tokens.toml")
    assert alice == ClientToken("alice", DIGEST, allow=("npm:files::*",), requests_per_minute=60)
    assert (ci.calls, ci.consent, ci.allow) == (False, "never", None)
    rows = {"tokens": [{"name": "alice", "sha256": DIGEST, "allow": []}]}
    (tmp_path / "tokens.json").write_text(json.dumps(rows))
    (only,) = read_tokens(tmp_path / "tokens.json")
    assert only.allow == ()


@cases(
    "text, message",
    ("[[tokens]\n", "expected TOML"),
    ("", "found no tokens"),
    ('[[tokens]]\nname = "a"\n', "name and sha256"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{SECRET}"\n', "64 lower-case hex"),
    (f'[[tokens]]\nname = "a b"\nsha256 = "{DIGEST}"\n', "letters, digits"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{DIGEST}"\nallow = "*"\n', "allow is a str"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{DIGEST}"\nallow = [1]\n', "something else"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{DIGEST}"\ncalls = 1\n', "calls is a int"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{DIGEST}"\nconcurrent = 0\n', "at least 1"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{DIGEST}"\nconcurrent = true\n', "concurrent is a bool"),
    (f'[[tokens]]\nname = "a"\nsha256 = "{DIGEST}"\nconsent = "yes"\n', "'ask' or 'never'"),
    (f'[[tokens]]\nname = "a"\ntoken = "{SECRET}"\n', "unknown key 'token'"),
)
def test_a_file_that_cannot_be_used_is_named_and_no_secret_is_told(text, message, tmp_path):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(TokenError) as raised:
        read_tokens(path)
    assert str(path) in str(raised.value)
    assert message in str(raised.value)
    assert SECRET not in str(raised.value)


@cases(
    "use, message",
    (lambda folder: read_tokens(folder / "none.toml"), "No such file"),
    (lambda _: build_token("hunter2"), "at least 20"),
    (lambda _: HttpSettings(tokens=(build_token(SECRET), build_token(SECRET + "x"))), "one name"),
    (lambda _: HttpSettings(tokens=(ClientToken("a"),)), "sha256"),
    (lambda _: MetaPolicy(consent="perhaps"), "'always'"),  # type: ignore[arg-type]
)
def test_what_cannot_be_used_is_refused(use, message, tmp_path):
    with pytest.raises(TokenError, match=message):
        use(tmp_path)


def test_a_secret_has_one_owner():
    mine, other = build_token(SECRET, "mine"), build_token(SECRET + "x", "other")
    assert find_owner(SECRET, (other, mine)) == mine
    assert (find_owner(SECRET + "y", (other, mine)), find_owner("", (other, mine))) == (None, None)
    assert find_owner("\udcff", (mine,)) is None
    assert SECRET not in repr(mine)


def test_loopback_is_told_from_everything_else():
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost", "127.9.9.9")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


def test_a_token_may_ask_again_after_a_minute_and_gets_its_place_back():
    now = [0.0]
    limits = RequestLimits(clock=lambda: now[0])
    token = ClientToken("a", requests_per_minute=2)
    limits.count(token)
    now[0] = 20.0
    limits.count(token)
    with pytest.raises(TooMany, match="come again in 40 s") as raised:
        limits.count(token)
    assert raised.value.retry_s == 40.0
    limits.count(ClientToken("b", requests_per_minute=2))
    now[0] = 60.0
    limits.count(token)
    with pytest.raises(TooMany):
        limits.count(token)
    limits, token = RequestLimits(), ClientToken("a", concurrent=1)

    def fail() -> None:
        with limits.running(token):
            raise RuntimeError

    with limits.running(token), pytest.raises(TooMany, match="1 calls running"):
        fail()
    with pytest.raises(RuntimeError):
        fail()
    with limits.running(token):
        pass
