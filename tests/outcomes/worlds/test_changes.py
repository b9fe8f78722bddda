"""Changes of facts: each form does what it says, and refuses where it cannot."""

import pytest

from assets.outcomes.worlds.changes import ChangeImpossible, apply_changes

FACTS = {
    "a.txt": "one two",
    "sub": {"is": "folder"},
    "sub/b": {"n": 1.1, "tags": ["x", "y"]},
    "subtle": 3,
}


@pytest.mark.parametrize(
    ("change", "key", "after"),
    [
        ({"set": "a.txt", "to": "new"}, "a.txt", "new"),
        ({"add": "c", "to": 1}, "c", 1),
        ({"update": "sub/b", "with": {"n": 2}}, "sub/b", {"n": 2, "tags": ["x", "y"]}),
        ({"increase": "sub/b", "of": "n", "by": 2.2}, "sub/b", {"n": 3.3, "tags": ["x", "y"]}),
        ({"increase": "subtle", "by": 4}, "subtle", 7),
        ({"append": "sub/b", "of": "tags", "items": ["z"]}, "sub/b", {"n": 1.1, "tags": [*"xyz"]}),
        ({"append": "a.txt", "items": "!"}, "a.txt", "one two!"),
        ({"drop": "sub/b", "of": "tags", "items": ["x"]}, "sub/b", {"n": 1.1, "tags": ["y"]}),
        ({"replace": "a.txt", "old": "two", "new": "2"}, "a.txt", "one 2"),
    ],
)
def test_a_change_touches_its_key_and_no_other(change, key, after):
    found = apply_changes(FACTS, [change])
    assert found[key] == after
    assert {k: v for k, v in found.items() if k != key} == {
        k: v for k, v in FACTS.items() if k != key
    }


def test_a_branch_is_copied_with_its_files_and_a_sheet_moves_with_its_cells():
    facts = {"branch/a": 1, "branch/a:x": 2, "branch/ab": 3, "S": 4, "S!A1": 5}
    copied = apply_changes(facts, [{"copy": "branch/a", "to": "branch/c"}])
    assert copied == {**facts, "branch/c": 1, "branch/c:x": 2}
    moved = apply_changes(facts, [{"move": "S", "to": "T"}])
    assert (moved["T"], moved["T!A1"], "S!A1" in moved) == (4, 5, False)
    with pytest.raises(ChangeImpossible):
        apply_changes(facts, [{"copy": "S", "to": "branch/a"}])


def test_a_folder_moves_and_goes_with_all_that_is_in_it():
    moved = apply_changes(FACTS, [{"move": "sub", "to": "top"}])
    assert sorted(moved) == ["a.txt", "subtle", "top", "top/b"]
    assert sorted(apply_changes(FACTS, [{"remove": "sub/"}])) == ["a.txt", "subtle"]
    assert sorted(apply_changes(FACTS, [{"remove": "a.txt"}])) == ["sub", "sub/b", "subtle"]


@pytest.mark.parametrize(
    "change",
    [
        {"add": "a.txt", "to": 1},
        {"remove": "none"},
        {"move": "a.txt", "to": "sub"},
        {"move": "a.txt", "to": "a.txt"},
        {"update": "sub/b", "with": {"n": 1.1}},
        {"drop": "sub/b", "of": "tags", "items": ["q"]},
        {"replace": "a.txt", "old": "three", "new": "3"},
        {"replace": "a.txt", "old": "one", "new": "one"},
        {"increase": "a.txt", "by": 1},
        {"set": "a.txt"},
        {"rename": "a.txt", "to": "b"},
    ],
)
def test_a_change_that_is_impossible_or_none_is_refused(change):
    with pytest.raises(ChangeImpossible):
        apply_changes(FACTS, [change])
