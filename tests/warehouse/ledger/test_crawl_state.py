"""A memo remembers between processes, and a broken one is a lost one."""

from pathlib import Path

from warehouse.ledger.crawl_state import CrawlMemo


def test_what_was_put_last_is_read_by_the_next_process(tmp_path: Path) -> None:
    first = CrawlMemo(tmp_path / "state" / "memo.db")
    first.put("validators", "a", {"etag": '"1"'})
    first.put("validators", "a", {"etag": '"2"'})
    first.put("checkpoint", "a", [1, None])
    first.close()
    second = CrawlMemo(tmp_path / "state" / "memo.db")
    assert second.get("validators", "a") == {"etag": '"2"'}
    assert second.get("checkpoint", "a") == [1, None]
    assert second.get("checkpoint", "b") is None


def test_a_file_that_is_no_memo_is_put_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "memo.db"
    path.write_bytes(b"not a database, but long enough to look like a page of one" * 40)
    memo = CrawlMemo(path)
    memo.put("a", "b", 1)
    assert memo.get("a", "b") == 1
    assert path.with_name("memo.db.unreadable").read_bytes().startswith(b"not a database")
