"""Keys: what of a listing may join it to another."""

from assets.catalogue.identity import find_keys
from assets.marketplaces.listing import Listing


def test_a_folder_is_the_same_named_beside_the_repository_or_in_its_address() -> None:
    url = "https://github.com/acme/servers"
    beside = Listing(
        marketplace="m", native_id="a", name="x", repository=url, subfolder="src/Clock"
    )
    within = beside.model_copy(update={"repository": f"{url}/tree/main/src/clock/"})
    within = within.model_copy(update={"subfolder": None})
    assert find_keys(beside).at("repository") == "github.com/acme/servers#src/clock"
    assert find_keys(beside) == find_keys(within)
