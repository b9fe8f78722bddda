import pytest

from benchmarks.outcomes.noise.endpoints import (
    AFTER,
    BEFORE,
    list_real,
    load_sources,
    rename_arguments,
)
from tests.benchmarks.outcomes.noise.stages import SOURCE, make_contract, make_endpoint


def test_there_are_sixty_real_endpoints_or_more() -> None:
    assert sum(len(source.tools) for source in load_sources()) >= 60


def test_a_tool_that_is_not_listed_is_no_endpoint() -> None:
    found = list_real({SOURCE: {"read_file": make_contract("read_file", "path")}})
    assert [(one.base, one.direct) for one in found] == [("read_file", True)]
    assert SOURCE not in found[0].id


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ({"paths": ["/a", "/b"], "path": "/c"}, {"paths": ["/a", "/b"]}),
        ({"path": "/c"}, {"paths": ["/c"]}),
        ({"name": "c"}, None),
    ],
)
def test_the_first_form_that_can_be_filled_is_the_call(
    slots: dict[str, object], expected: object
) -> None:
    assert make_endpoint("s", "read_multiple_files").write_call(slots, BEFORE) == expected


def test_a_renamed_argument_is_sent_by_its_new_name_and_reaches_the_tool_by_its_old() -> None:
    changed = rename_arguments(make_endpoint("s"), {"path": "ref"}, "now otherwise")
    assert changed.write_call({"path": "/c"}, BEFORE) == {"path": "/c"}
    sent = changed.write_call({"path": "/c"}, AFTER)
    assert sent == {"ref": "/c"}
    assert sent is not None
    assert changed.translate_call(sent) == {"path": "/c"}
    assert changed.contracts[AFTER]["inputSchema"]["required"] == ["ref"]
    assert changed.digest_contract(BEFORE) != changed.digest_contract(AFTER)
