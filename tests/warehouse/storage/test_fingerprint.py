"""A fingerprint finds its secret in every usual form, and gives nothing of it away."""

import json
from urllib.parse import quote

import pytest

from warehouse.storage.takedowns import _STEP, Fingerprint, UnusableSecret

SECRET = 'sk-live-9f"8\\7/é6d5c4b3'


@pytest.fixture(scope="module")
def mark() -> Fingerprint:
    return Fingerprint.of(SECRET)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"Bearer {SECRET}.",
        json.dumps({"env": {"KEY": SECRET}}),
        json.dumps({"env": {"KEY": SECRET}}, ensure_ascii=False),
        json.dumps(json.dumps([SECRET])),
        json.dumps(json.dumps([SECRET], ensure_ascii=False)),
        f"https://a.example/?key={quote(SECRET, safe='')}&b=1",
    ],
)
def test_a_secret_is_found_in_each_form(mark: Fingerprint, text: str) -> None:
    assert mark.find_holders(["", text, "else"]) == [1]
    assert Fingerprint.parse(json.loads(json.dumps(mark.dump()))).is_held_by(text.encode())


def test_all_but_its_last_character_is_not_the_secret(mark: Fingerprint) -> None:
    assert mark.find_holders([SECRET[:-1], SECRET[1:], SECRET[::-1], "x" * 500]) == []
    assert mark.find_holders([]) == []


def test_a_secret_is_found_wherever_blocks_meet(mark: Fingerprint) -> None:
    for before in (_STEP - 40, _STEP - 5, _STEP - 1, _STEP, 2 * _STEP - 7):
        assert mark.is_held_by(b"a" * before + SECRET.encode() + b"b" * 50), before


def test_what_is_kept_does_not_hold_the_secret_and_differs_each_time(mark: Fingerprint) -> None:
    kept, other = json.dumps(mark.dump()), json.dumps(Fingerprint.of(SECRET).dump())
    assert SECRET[:8] not in kept
    assert kept != other
    assert not Fingerprint.parse(json.loads(other)).is_held_by(kept.encode())


@pytest.mark.parametrize("secret", ["", "short", " " * 20, "x" * 20_000])
def test_what_would_stand_in_texts_by_chance_is_refused(secret: str) -> None:
    with pytest.raises(UnusableSecret, match="expected 8 to"):
        Fingerprint.of(secret)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UnusableSecret, match="no UTF-8 text"):
        Fingerprint.of(b"\xff\xfe\x00abcdefgh".decode(errors="surrogateescape"))
