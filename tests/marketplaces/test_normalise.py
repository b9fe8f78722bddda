"""What third parties wrote is fit to store and show; a launch fact is never changed quietly."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.adapters.docker import DockerAdapter
from assets.marketplaces.adapters.glama import GlamaAdapter
from assets.marketplaces.adapters.smithery import SmitheryAdapter
from assets.marketplaces.crawl.crawl import crawl
from assets.marketplaces.crawl.result import make_public_listing
from assets.marketplaces.listing import (
    MOST_TOOLS,
    EnvVar,
    HeaderVar,
    LaunchFacts,
    Listing,
    PackageRef,
    digest_listing,
    dump_tools,
    load_tools,
    make_row,
    read_row,
)
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.normalise import DESCRIPTION_CAP, ID_CAP, NAME_CAP, clean, clean_text
from assets.marketplaces.policy import CrawlPolicy
from tests.marketplaces.answers import POLICY, read
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from tests.support.examples import examples, json_values

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


def test_an_id_with_a_zero_width_character_shows_it_and_a_very_long_one_stays_its_own():
    found = clean(listing(native_id=f"io.example{ZERO}/x"))
    assert found.native_id == "io.example%E2%80%8B/x"
    assert (found.flags, found.runnable) == (("hidden_text",), True)
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


def test_a_long_text_is_cut_between_words_and_only_the_start_of_a_huge_one_is_read():
    found = clean(listing(description="word " * 2_000)).description
    assert found.endswith("word…")
    assert len(found) <= DESCRIPTION_CAP
    found, _ = clean_text("x" + "q\u0323\u0307" * 100, 12, lines=False)
    assert not found.removesuffix("…").endswith(("q", "q\u0323"))
    reads: list[slice] = []

    class Huge(str):
        def __getitem__(self, at: Any) -> str:
            reads.append(at)
            return super().__getitem__(at)

    found, _ = clean_text(Huge("é " * 5_000_000), DESCRIPTION_CAP)
    assert found.endswith("…")
    assert all(at.stop <= 4 * DESCRIPTION_CAP for at in reads)


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
    assert (found.runnable, f"in {where}" in str(found.reason)) == (False, True)
    assert "%" in str(getattr(found, where))
    assert clean(found) == found


def test_a_value_of_several_lines_and_a_described_variable_can_be_launched():
    variable = EnvVar(name="PROMPT", default="two\nlines", description=f"What{ZERO} it says")
    found = clean(listing(env=(variable,)))
    assert found.runnable
    assert (found.env[0].description, found.env[0].default) == ("What it says", "two\nlines")


# --- listings survive their rows; the tools that marketplaces show are kept with their payload
TOOL = {"name": "get_time", "description": "Tells the time.", "inputSchema": {"type": "object"}}


DEEP: Any = {}
for _ in range(20_000):
    DEEP = {"a": DEEP}


def test_members_that_say_what_a_tool_is_are_kept_and_no_others():
    shown = [{**TOOL, "score": 3, "icons": [], "title": None}, "by_name", {"name": " "}, 7, None]
    assert load_tools(dump_tools(shown) or "") == [TOOL, {"name": "by_name"}]
    other = [{"name": "geocode", "input_schema": {"type": "object", "properties": {"a": {}}}}]
    assert load_tools(dump_tools(other) or "")[0]["inputSchema"]["properties"] == {"a": {}}
    nan = {"name": "nan", "inputSchema": {"default": float("nan")}}  # JSON cannot hold these
    deep = {"name": "deep", "inputSchema": DEEP}
    assert load_tools(dump_tools([nan, deep, TOOL]) or "") == [TOOL]


@cases("shown", None, [], {}, "tools", [{}], [{"name": float("nan")}])
def test_a_record_that_shows_none_has_none(shown):
    assert dump_tools(shown) is None


def test_no_list_is_longer_than_its_bounds():
    many = dump_tools([{"name": f"tool_{at}"} for at in range(MOST_TOOLS + 50)])
    assert len(load_tools(many or "")) == MOST_TOOLS
    long = {"name": "long", "description": "x" * 300_000}
    assert load_tools(dump_tools([long, TOOL]) or "") == [TOOL]
    wide = dump_tools([{"name": f"t{at}", "description": "x" * 150_000} for at in range(40)])
    assert 0 < len(load_tools(wide or "")) < 40
    assert len(wide or "") < 2_100_000


MEMBERS = st.sampled_from(["name", "description", "inputSchema", "input_schema", "x"])


@given(json_values(names=MEMBERS, leaves=8))
@examples(100)
def test_whatever_is_shown_gives_named_tools_or_none(shown):
    text = dump_tools(shown)
    assert text is None or all(tool["name"].strip() for tool in load_tools(text))


@cases("text", "", "nonsense", "{}", "[1, 2]", "[" * 100_000)
def test_a_text_that_is_none_of_ours_holds_no_tools(text):
    assert load_tools(text) == []


SMITHERY = {"qualifiedName": "ann/clock", "connections": [], "tools": [TOOL]}
GLAMA = {
    "id": "1", "name": "Clock", "namespace": "ann", "slug": "clock", "attributes": [],
    "url": "https://glama.ai/mcp/connectors/ann/clock", "tools": [TOOL],
    "connection": {"authType": "none", "transport": "sse", "url": "https://clock.example/mcp"},
}  # fmt: skip
DOCKER = {"title": "Clock", "image": "mcp/clock", "tools": [TOOL]}


@cases(
    "adapter, payload",
(SmitheryAdapter(POLICY), SMITHERY), (GlamaAdapter(POLICY), GLAMA),
     (DockerAdapter(POLICY), DOCKER),
)  # fmt: skip
def test_the_marketplaces_that_show_tools_have_them_read(adapter, payload):
    [found] = read(adapter, payload)
    assert load_tools(found.tools or "") == [TOOL]
    without = json.loads(json.dumps(payload).replace("get_time", ""))
    [bare] = read(adapter, without)
    assert bare.tools is None
    assert digest_listing(bare) == digest_listing(found)  # its launch is planned by the rest


def test_a_row_names_where_the_tools_lie_and_holds_none_of_them():
    listing = Listing(marketplace="m", native_id="a", name="A", tools=dump_tools([TOOL]))
    row = LISTINGS.frame([make_row(listing, tools_blob="f" * 64)]).row(0, named=True)
    assert row["tools_blob"] == "f" * 64
    assert "get_time" not in json.dumps(row)
    assert read_row(row) == listing.model_copy(update={"tools": None})
    assert "tools" not in make_public_listing(listing)


def test_a_crawl_keeps_what_is_shown_without_the_secrets_in_it(ledger):
    key = "ghp_" + "a1B2" * 9
    shown = {**TOOL, "description": f"Send Authorization: Bearer {key} with it."}

    def answer(path: str, number: int) -> Answer:
        if path.startswith("/servers?"):
            body: Any = {"servers": [SMITHERY], "pagination": {"totalCount": 1, "totalPages": 1}}
        elif path.startswith("/servers/"):
            body = {**SMITHERY, "tools": [shown]}
        else:
            return Answer(status=404)
        return Answer(json.dumps(body), content_type="application/json")

    with site(answer) as here:
        policy = CrawlPolicy(here.url, requests_per_second=0, allow_loopback=True)
        result = crawl(SmitheryAdapter(policy), ledger=ledger, run_date="1")
    [row] = result.frame.to_dicts()
    held = ledger.blobs.get(row["tools_blob"]).decode()
    assert "Send Authorization" in held
    assert key not in held


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
inputs = {"name": names, "required": st.booleans(), "secret": st.booleans()}
listings = st.builds(
    Listing,
    marketplace=st.sampled_from(["registry", "mcpso"]),
    native_id=names,
    name=words,
    description=words,
    args=st.lists(words, max_size=3).map(tuple),
    launch=st.none() | st.builds(LaunchFacts, own_args=st.tuples(words), entry=st.none() | words),
    env=st.lists(st.builds(EnvVar, **inputs), max_size=2).map(tuple),
    headers=st.lists(st.builds(HeaderVar, **inputs), max_size=2).map(tuple),
    package=st.none() | st.builds(PackageRef, type=st.just("npm"), identifier=words),
    runnable=st.booleans(),
    reason=st.none() | words,
)


@given(listings)
def test_a_listing_survives_its_row_and_its_digest_ignores_when_it_was_edited(listing):
    row = LISTINGS.frame([make_row(listing, fetched_at=1.0)]).row(0, named=True)
    assert read_row(row) == listing
    edited = listing.model_copy(update={"updated_at": "2026-11-20T00:00:00Z"})
    assert digest_listing(edited) == digest_listing(listing)
    renamed = listing.model_copy(update={"name": f"{listing.name}c"})
    assert digest_listing(renamed) != digest_listing(listing)
