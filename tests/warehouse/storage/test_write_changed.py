"""A file is written where it holds something else, and left alone where it holds just that."""

from pathlib import Path

from warehouse.storage.files import write_changed


def test_only_other_bytes_are_written(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "page.md"
    assert write_changed(path, b"one")
    before = path.stat()
    assert not write_changed(path, b"one")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert write_changed(path, b"two")  # as many bytes
    assert path.read_bytes() == b"two"
    path.unlink()
    assert write_changed(path, b"two")
    assert path.read_bytes() == b"two"
