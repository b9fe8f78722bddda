"""Which listings are one server: by the strongest field they share, never by a promiscuous one."""

from hypothesis import given
from hypothesis import strategies as st

from assets.catalogue.categories import CATEGORIES, find_category
from assets.catalogue.identity import (
    ServerGroup,
    find_keys,
    group_listings,
    make_package_key,
    make_repository_key,
    make_url_key,
    name_key,
)
from assets.marketplaces.listing import Listing, PackageRef
from tests.catalogue.servers import listing
from tests.support.cases import cases
from tests.support.examples import examples

MONOREPO = "https://github.com/example/servers"


def groups(*listings: Listing) -> set[frozenset[str]]:
    return {
        frozenset(m.listing.listing_id for m in item.members) for item in group_listings(listings)
    }


def joined(*listings: Listing) -> str | None:
    """The field that joins all of them, None where they stay apart."""
    found = group_listings(listings)
    if len(found) > 1:
        return None
    [by] = {member.joined_by for member in found[0].members}
    return by


@cases(
    "kind, one, other",
    ("npm", "@Example/tool", "@example/tool"),
    ("pypi", "Some_Tool.server", "some-tool-server"),
    ("oci", "docker.io/example/tool:1.2@sha256:ab", "Example/Tool"),
    ("mcpb", "https://x.example.com/a.mcpb?sig=1", "https://x.example.com/a.mcpb"),
)
def test_ways_to_write_one_package(kind, one, other):
    keys = {make_package_key(PackageRef(type=kind, identifier=text)) for text in (one, other)}  # type: ignore[arg-type]
    assert len(keys) == 1
    assert keys != {None}


@cases("kind", "npm", "oci")
@cases("name", "@smithery/cli", "node:22", "", "@", "[redacted]")
def test_what_runs_another_server_is_no_identity(kind, name):
    key = make_package_key(PackageRef(type=kind, identifier=name))  # type: ignore[arg-type]
    assert key in (None, "npm:node:22", "npm:@", "oci:@smithery/cli")


@cases(
    "text",
    "https://github.com/Example/Tool",
    "http://www.github.com/example/tool.git",
    "git@github.com:example/tool.git",
    "git+ssh://git@github.com/example/tool.git",
    "git+https://github.com/example/tool.git#main",
    "github.com/example/tool/",
    "https://user:pass@github.com/example/tool?tab=readme",
)
def test_ways_to_write_one_repository(text):
    assert make_repository_key(text) == ("github.com/example/tool", "")


@cases(
    "text, expected",
    ("https://github.com/example/tools/tree/main/src/one", ("github.com/example/tools", "src/one")),
    ("https://gitlab.com/a/b/c/-/tree/main/one", ("gitlab.com/a/b/c", "one")),
    ("https://git.example.com/A/b.git", ("git.example.com/A/b", "")),
    ("https://example.com/product/tool", (None, "")),
    ("https://github.com/example", (None, "")),
    ("https://[broken", (None, "")),
    ("", (None, "")),
)
def test_folders_and_what_is_no_repository(text, expected):
    assert make_repository_key(text) == expected


def test_a_folder_is_the_same_named_beside_the_repository_or_in_its_address():
    url = "https://github.com/acme/servers"
    beside = listing("a", repository=url, subfolder="src/Clock")
    within = listing("a", repository=f"{url}/tree/main/src/clock/")
    assert find_keys(beside).at("repository") == "github.com/acme/servers#src/clock"
    assert find_keys(beside) == find_keys(within)


@cases(
    "text",
    *("http://localhost:3000/mcp", "http://127.0.0.1/mcp", "http://10.0.0.7/mcp"),
    *("http://box/mcp", "https://{host}/mcp", "https://x.example.com/${id}"),
    *("https://x.example.com/[redacted]/mcp", ""),
)
def test_a_pattern_and_a_private_address_name_no_server(text):
    assert make_url_key(text) is None


@cases(
    "text, category",
    ("Query a PostgreSQL database", "databases"),
    ("GitHub pull requests and repositories", "code & repositories"),
    ("Send messages to Slack", "communication"),
    ("Stripe payments", "finance & commerce"),
    ("Does things.", "other"),
    ("io.github.owner/postgres-mcp", "databases"),
    ("@slack-tools/sqlite", "databases"),
)
def test_a_category_is_read_from_the_words(text, category):
    assert find_category(text) == category
    assert category in CATEGORIES


def test_names_without_what_every_server_is_called():
    assert name_key("Example-Notes MCP Server") == name_key("@owner/example_notes-mcp")
    assert name_key("MCP Server") is None


X, NOTES = "https://github.com/example/x", "https://github.com/example/notes"


@cases(
    "one, other, by",
    ({"npm": "@example/x", "repository": "https://github.com/one/x"},
     {"npm": "@example/x", "name": "Quite other"}, "package"),
    ({"url": "https://mcp.example.com/mcp?key=1#x", "name": "One thing"},
     {"url": "http://MCP.example.com/mcp/", "name": "Other thing"}, "url"),
    ({"npm": "@example/x", "repository": X},
     {"name": "X by Example", "repository": "git@github.com:Example/x.git"}, "repository"),
    ({"npm": "@example/notes-mcp", "repository": NOTES},
     {"oci": "example/mcp-notes", "repository": NOTES}, "repository"),
    ({"npm": "alpha-notes", "name": "Example Notes"},
     {"npm": "beta-notes", "name": "Example Notes"}, None),
    ({"marketplace": "glama", "name": "Example Notes"}, {"name": "Example Notes"}, None),
)  # fmt: skip
def test_the_strongest_shared_field_joins_two_listings(one, other, by):
    assert joined(listing("a", **one), listing("b", **{"marketplace": "glama", **other})) == by


def test_a_gateway_joins_nobody_by_one_url_and_only_equal_paths_of_several():
    gateway = "https://remote.mcp.pipedream.net/v3"
    apps = [listing(f"app{i}", "pipedream", url=gateway, name=f"Application {i}") for i in range(5)]
    assert len(group_listings(apps)) == 5
    base = "https://server.smithery.ai/@example"
    one, two = (listing(n, "smithery", url=f"{base}/{n}", name=f"Server {n}") for n in ("aa", "bb"))
    assert groups(one, two, listing("aa", "mcpso", url=f"{base}/aa?x=1", name="A copy")) == {
        frozenset({"smithery:aa", "mcpso:aa"}),
        frozenset({"smithery:bb"}),
    }


def test_a_monorepo_joins_by_equal_names_or_folders_alone():
    one = listing("a", npm="@example/alpha", repository=MONOREPO, name="Alpha things")
    two = listing("b", npm="@example/beta", repository=MONOREPO, name="Beta things")
    stray = listing("c", "glama", repository=MONOREPO, name="Example servers all")
    assert len(group_listings([one, two, stray])) == 3
    same = listing("c", "glama", repository=MONOREPO, name="alpha-things")
    assert frozenset({"registry:a", "glama:c"}) in groups(one, two, same)
    one, two = (listing(n, repository=f"{MONOREPO}/tree/main/src/{n}") for n in ("alpha", "beta"))
    copy = listing("x", "glama", repository=f"{MONOREPO}/blob/master/src/alpha", name="Something")
    assert groups(one, two, copy) == {
        frozenset({"registry:alpha", "glama:x"}),
        frozenset({"registry:beta"}),
    }


def test_a_name_joins_only_where_nothing_contradicts_and_weak_joins_do_not_chain_packages():
    one = listing("a", npm="alpha-notes", name="Example Notes")
    other = listing("b", "glama", name="example-notes MCP server")
    assert joined(one, other) == "name"
    far = listing("c", "mcpso", name="Example Notes", npm="beta-notes")
    assert len(group_listings([one, other, far])) == 3  # nobody can say whose name `other` bears
    one = listing("a", npm="alpha", name="Alpha one", repository="https://github.com/x/one")
    two = listing("b", npm="beta", name="Beta two", repository="https://github.com/x/two")
    bridge = listing("c", "glama", url="https://mcp.example.com", name="Bridge")
    sides = [
        listing(of, market, url="https://mcp.example.com", repository=other.repository, name=of)
        for of, market, other in (("d", "mcpso", one), ("e", "deepnlp", two))
    ]
    found = groups(one, two, bridge, *sides)
    assert not any({"registry:a", "registry:b"} <= group for group in found)
    assert frozenset({"glama:c", "mcpso:d", "deepnlp:e"}) in found


WORDS = st.sampled_from(["alpha", "beta", "gamma-notes", "delta"])
LISTINGS = st.lists(
    st.builds(
        lambda marketplace, number, name, npm, pypi, url, repository: listing(
            f"n{number}",
            marketplace,
            name=name,
            repository=repository and f"https://github.com/x/{repository}",
            **({"npm": npm} if npm else {"pypi": pypi} if pypi else {"url": url}),
        ),
        st.sampled_from(["registry", "glama", "mcpso", "smithery"]),
        st.integers(0, 40),
        WORDS.map("{} server".format),
        st.none() | WORDS,
        st.none() | WORDS,
        st.none() | WORDS.map("https://{}.example.com/mcp".format),
        st.none() | WORDS | WORDS.map("all/tree/main/{}".format),
    ),
    max_size=14,
    unique_by=lambda one: one.listing_id,
)


def shape(found: list[ServerGroup]) -> list:
    return [
        (item.catalogue_id, [(m.listing.listing_id, m.joined_by) for m in item.members])
        for item in found
    ]


@given(LISTINGS, st.randoms(use_true_random=False))
@examples(200)
def test_the_order_of_listings_changes_nothing(listings, random):
    before = shape(group_listings(listings))
    random.shuffle(listings)
    assert shape(group_listings(listings)) == before


@given(LISTINGS)
@examples(200)
def test_every_listing_is_in_one_component_of_one_package_with_an_id_of_its_own(listings):
    found = group_listings(listings)
    members = [m.listing.listing_id for item in found for m in item.members]
    assert sorted(members) == sorted(item.listing_id for item in listings)
    assert len({item.catalogue_id for item in found}) == len(found)
    for one in found:
        assert all((m.joined_by is None) == (len(one.members) == 1) for m in one.members)
        packages = {m.keys.package for m in one.members if m.keys.package}
        assert len({name.partition(":")[0] for name in packages}) == len(packages)
        # Alone it is found again.
        ids = frozenset(m.listing.listing_id for m in one.members)
        assert groups(*(m.listing for m in one.members)) == {ids}


@given(LISTINGS, LISTINGS)
@examples(200)
def test_more_listings_never_part_what_a_package_joined(few, more):
    known = {item.listing_id for item in few}
    found = group_listings([*few, *(item for item in more if item.listing_id not in known)])
    place = {m.listing.listing_id: at for at, one in enumerate(found) for m in one.members}
    for one in few:
        for other in few:
            if (key := make_package_key(one.package)) and key == make_package_key(other.package):
                assert place[one.listing_id] == place[other.listing_id]
