"""What a tool may leave in the folder of a fetch, and what we do with it."""

import pytest

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fetch_phase import TREE, open_staging


def test_a_file_of_ours_is_written_over_nothing_and_through_no_link(tmp_path):
    with open_staging(tmp_path) as staging:
        (staging.opened / "there").write_text("old")
        (staging.opened / "link").symlink_to(tmp_path / "host")
        for name in ("there", "link"):
            with pytest.raises(FileExistsError):
                staging.write_request(name, "new")
        assert (staging.opened / "there").read_text() == "old"
    assert not (tmp_path / "host").exists()


@pytest.mark.parametrize("name", ["sealed", "toolmill.json", "tree/toolmill.json"])
def test_the_manifest_is_written_where_no_tool_could_leave_a_link(tmp_path, name):
    host = tmp_path / "host"
    host.write_text("old")
    with open_staging(tmp_path) as staging:
        (staging.opened / name).symlink_to(host)
        staging.publish({"a": 1}, tmp_path / "artifacts" / "x")
    assert host.read_text() == "old"
    assert (tmp_path / "artifacts/x/toolmill.json").read_text() == '{"a": 1}'
    assert not (tmp_path / "artifacts/x/toolmill.json").is_symlink()
    assert list((tmp_path / "cache/staging").iterdir()) == []


def test_a_link_in_place_of_the_tree_is_not_published(tmp_path):
    with open_staging(tmp_path) as staging:
        staging.tree.rmdir()
        staging.tree.symlink_to("/etc")
        with pytest.raises(PackageError, match="in place of its folder"):
            staging.publish({}, tmp_path / "artifacts" / "x")
    assert not (tmp_path / "artifacts" / "x").exists()


def test_what_another_run_published_first_stays(tmp_path):
    for text in ("first", "second"):
        with open_staging(tmp_path) as staging:
            (staging.tree / "a").write_text(text)
            staging.publish({}, tmp_path / "artifacts" / "x")
    assert (tmp_path / "artifacts/x" / TREE / "a").read_text() == "first"
