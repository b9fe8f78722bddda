"""What a change makes of the grants of one server."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.settings.server_changes import GrantChange, GrantRefused, change_block


def change_kept(block: dict, **change) -> dict:
    """What a block keeps of its three names after a change."""
    result = change_block(block, GrantChange(**change))
    assert set(result) == {"network", "folders", "hosts"}
    return {name: value for name, value in result.items() if value is not None}


PATHS = st.sampled_from(["/srv/a", "/srv/b:rw", "/srv/c"])
HOSTS = st.sampled_from(["a.example", "b.example:80", "10.0.0.1"])


@given(st.lists(PATHS, max_size=3), st.lists(HOSTS, max_size=3))
def test_what_is_granted_is_taken_back_whole(folders, hosts):
    change = {"folders": folders, "hosts": hosts}
    granted = change_kept({}, **change)
    assert set(granted) == {name for name, value in change.items() if value}
    assert change_kept(granted, **change) == granted
    if granted:
        assert change_kept(granted, **change, revoke=True) == {}
    assert change_kept({**granted, "network": "none"}, revoke=True) == {}


def test_a_folder_is_granted_anew_in_its_place_and_a_relative_one_is_below_where_it_is_typed():
    granted = change_kept({}, folders=["/srv/a", "/srv/b"])
    granted = change_kept(granted, folders=["/srv/a:rw", "notes"], here=Path("/home/me"))
    assert granted == {"folders": ["/srv/a:rw", "/srv/b", "/home/me/notes"]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"folders": ["~nobody-of-that-name/x"]}, "nobody-of-that-name"),
        ({"hosts": ["https://a.example"]}, "its scheme"),
        ({"folders": ["/srv/none"], "revoke": True}, "/srv/none is not granted"),
        ({"hosts": ["none.example"], "revoke": True}, "none.example is not granted"),
    ],
)
def test_what_cannot_be_granted_or_taken_back_is_named(change, problem):
    with pytest.raises(GrantRefused, match=problem):
        change_block({"folders": ["/srv/notes"]}, GrantChange(**change))
