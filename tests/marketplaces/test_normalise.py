"""What third parties wrote is fit to store and show; a launch fact is never changed quietly."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, PackageRef, make_row
from assets.marketplaces.normalise import DESCRIPTION_CAP, ID_CAP, NAME_CAP, clean, clean_text
from tests.support.cases import cases

ZERO, BIDI, TAG, HALF = "\u200b", "\u202e", "\U000e0041", "\ud800"


def listing(**facts: Any) -> Listing:
    plain = Listing(marketplace="registry", native_id="a", name="A", command="npx", runnable=True)
    return plain.model_copy(update={"args": ("x@1.0.0",), **facts})


@cases(
    "facts, what",
    ({"url": "https://a.example/" + "x" * 2_048}, "url"),
    ({"args": ("x",) * 65}, "args"),
    ({"args": ("{" * 4_097,)}, "args"),
    ({"env": (EnvVar(name="A" * 129),)}, "env"),
    ({"env": (EnvVar(name="A", default="x" * 4_097),)}, "env"),
    ({"package": PackageRef(type="npm", identifier="x" * 2_049)}, "package"),
    ({"subfolder": "x" * 513}, "subfolder"),
    ({"updated_at": "2" * 65}, "updated_at"),
    ({"env": tuple(EnvVar(name=f"A{n}") for n in range(101))}, "env"),
    ({"headers": tuple(HeaderVar(name=f"A{n}") for n in range(101))}, "headers"),
)
def test_a_launch_fact_beyond_its_cap_is_cut_said_and_never_launched(facts, what):
    row = clean(listing(**facts))
    assert not row.runnable
    assert row.reason == f"too long, so cut and never launched: {what}"
    assert "cut" in row.flags
    assert len(row.model_dump_json()) < 10_000
    assert clean(row) == row


HIDDEN = st.text(
    st.sampled_from([ZERO, BIDI, TAG, HALF, "\x00", "\u200d", "\ufe0f", "\u0301", "é"])
)
ANY = st.text(st.characters(categories=None)) | HIDDEN | st.tuples(st.text(), HIDDEN).map("".join)


@given(ANY, ANY, ANY, ANY)
def test_any_listing_is_cleaned_once_and_can_be_stored(name, text, native, arg):
    found = clean(listing(name=name, description=text, native_id=native or "a", args=(arg,)))
    assert clean(found) == found
    assert make_row(found)["listing_digest"]
    assert 0 < len(found.name) <= NAME_CAP
    assert len(found.description) <= DESCRIPTION_CAP
    for text in (found.name, found.description, found.native_id, *found.args):
        assert not {ZERO, BIDI, TAG, HALF, "\x00"} & set(text)


@given(ANY, ANY)
def test_ids_that_differ_stay_distinct_and_visible(one, other):
    if "%" in one + other:
        return  # an id may itself be written with escapes
    ids = [clean(listing(native_id=f"x{native}")).native_id for native in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)


def test_an_id_with_a_zero_width_character_shows_it():
    found = clean(listing(native_id=f"io.example{ZERO}/x"))
    assert found.native_id == "io.example%E2%80%8B/x"
    assert found.flags == ("hidden_text",)
    assert found.runnable


def test_a_very_long_id_is_cut_and_stays_its_own():
    one, other = (clean(listing(native_id="x" * 9_000 + end)).native_id for end in "ab")
    assert one != other
    assert len(one) <= ID_CAP


@cases(
    "text, expected",
    (f"Pay{ZERO}Pal {BIDI}tool", "PayPal tool"),
    ("e\u0301  tool\n\tname", "é tool name"),
    (f"Flag {TAG}{TAG}", "Flag"),
    ("a\u200dd", "ad"),
    ("line\u2028two", "line two"),
    ("a\x00b\x9bc", "abc"),
)
def test_names_show_all_they_hold(text, expected):
    assert clean(listing(name=text)).name == expected


@cases(
    "text",
    "می‌خواهم",  # Persian: a non-joiner inside a word
    "क्‍ष",  # Devanagari: a joiner asks for the half form
    "👩‍👩‍👧 family",
    "❤️ and 1️⃣",
    "葛󠄀",  # an ideograph and its variant
    "Tabs\tand\nlines stay",
    "العربية עברית 中文 ไทย",
)
def test_writing_that_needs_joiners_is_left_whole(text):
    found = clean(listing(description=text))
    assert found.description == text
    assert "hidden_text" not in found.flags


@cases("text", "", "plain", "a" * DESCRIPTION_CAP)
def test_what_is_clean_is_the_same_listing(text):
    one = listing(description=text)
    cleaned = clean(one)
    assert cleaned == one.model_copy(update={"launch": cleaned.launch})


def test_a_long_description_is_cut_between_words():
    found = clean(listing(description="word " * 2_000)).description
    assert found.endswith("word…")
    assert len(found) <= DESCRIPTION_CAP


def test_only_the_start_of_a_huge_description_is_read():
    reads: list[slice] = []

    class Huge(str):
        def __getitem__(self, at: Any) -> str:
            reads.append(at)
            return super().__getitem__(at)

    found, _ = clean_text(Huge("é " * 5_000_000), DESCRIPTION_CAP)
    assert found.endswith("…")
    assert all(at.stop <= 4 * DESCRIPTION_CAP for at in reads)


def test_a_letter_is_not_cut_from_its_accents():
    found, _ = clean_text("x" + "q\u0323\u0307" * 100, 12, lines=False)
    assert not found.removesuffix("…").endswith(("q", "q\u0323"))


@cases(
    "facts, where",
    ({"args": ("x@1.0.0", f"--flag{ZERO}")}, "args"),
    ({"command": f"npx{BIDI}"}, "command"),
    ({"command": None, "args": (), "url": f"https://example{ZERO}.com"}, "url"),
    ({"env": (EnvVar(name=f"KEY{ZERO}"),)}, "env"),
    ({"env": (EnvVar(name="KEY", default=f"v{BIDI}"),)}, "env"),
    ({"package": PackageRef(type="npm", identifier=f"x{ZERO}", version="1.0.0")}, "package"),
)
def test_a_hidden_character_in_a_launch_fact_stops_the_launch(facts, where):
    found = clean(listing(**facts))
    assert not found.runnable
    assert found.reason
    assert f"in {where}" in found.reason
    assert "%" in str(getattr(found, where))
    assert clean(found) == found


def test_a_value_of_several_lines_and_a_described_variable_can_be_launched():
    variable = EnvVar(name="PROMPT", default="two\nlines", description=f"What{ZERO} it says")
    found = clean(listing(env=(variable,)))
    assert found.runnable
    assert found.env[0].description == "What it says"
    assert found.env[0].default == "two\nlines"
