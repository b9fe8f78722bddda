"""Listings survive their rows, and their digest covers what they say."""

from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import (
    EnvVar,
    HeaderVar,
    LaunchFacts,
    Listing,
    PackageRef,
    digest_listing,
    make_row,
    read_row,
)
from assets.marketplaces.listing_table import LISTINGS

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
def test_a_listing_survives_its_row(listing: Listing) -> None:
    row = LISTINGS.frame([make_row(listing, fetched_at=1.0)]).row(0, named=True)
    assert read_row(row) == listing


def test_the_digest_ignores_when_a_listing_was_edited_and_fetched() -> None:
    listing = Listing(marketplace="registry", native_id="a/b", name="b")
    edited = listing.model_copy(update={"updated_at": "2026-11-20T00:00:00Z"})
    assert digest_listing(edited) == digest_listing(listing)
    renamed = listing.model_copy(update={"name": "c"})
    assert digest_listing(renamed) != digest_listing(listing)
