"""Folders that the sandbox's user cannot read."""

import os

import pytest

from assets.servers.deploy import launch
from assets.servers.deploy.launch import FolderTooLarge, make_readable

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandbox is another user")


@root_only
def test_a_closed_folder_is_copied_with_its_links_and_modes(tmp_path):
    closed = tmp_path / "closed"
    (closed / "sub").mkdir(parents=True)
    (closed / "run.sh").write_text("x")
    (closed / "sub" / "data").write_text("y")
    (closed / "link").symlink_to("/etc/shadow")
    os.mkfifo(closed / "pipe")
    closed.chmod(0o700)
    (closed / "run.sh").chmod(0o700)
    (closed / "sub" / "data").chmod(0o600)
    with make_readable(closed) as copy:
        assert copy != closed
        assert copy.parent.stat().st_mode & 0o777 == 0o700
        assert (copy / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (copy / "sub" / "data").stat().st_mode & 0o777 == 0o644
        assert os.readlink(copy / "link") == "/etc/shadow"
        assert sorted(os.listdir(copy)) == ["link", "run.sh", "sub"]
    assert not copy.exists()
    assert closed.stat().st_mode & 0o777 == 0o700


def test_an_open_folder_is_itself(tmp_path):
    opened = tmp_path / "open"
    opened.mkdir(mode=0o755)
    (opened / "f").write_text("x")
    with make_readable(opened) as same:
        assert same == opened


@root_only
def test_a_closed_folder_of_any_size_is_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_MAX_MB", 0)
    tmp_path.chmod(0o700)
    (tmp_path / "f").write_text("x")
    with pytest.raises(FolderTooLarge, match="chmod -R"), make_readable(tmp_path):
        raise AssertionError("no copy was made")
