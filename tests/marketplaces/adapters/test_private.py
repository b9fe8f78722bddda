"""The user's own files: read where they lie, and their rows held back."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.adapters.private import PrivateAdapter, is_endpoint_approved
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import CrawlPolicy, RecordPage
from tests.marketplaces.answers import read_inputs
from tests.support.cases import cases

CONFIG = {"mcpServers": {"quill": {"command": "npx", "args": ["-y", "quill@1.0.0"]}}}
VS_CODE = """{ // what VS Code writes
  "inputs": [{"type": "promptString", "id": "who", "password": true}, {"id": "site"}],
  "servers": {
    "quill": {"type": "stdio", "command": "uvx", "args": ["quill==1.0"],
      "env": {"WHO": "${input:who}", "SITE": "${input:site}", /* fast */ "MODE": "fast",
              "PLAIN": "a8f7e6d5c4b3a29180706050", "QUILL_TOKEN": "hunter2"}},
    "far": {"type": "http", "url": "https://quill.example/mcp",
      "headers": {"X-Who": "${input:who}"}},
  },
}"""


async def unreachable(*_: object, **__: object) -> Any:
    raise AssertionError("the network was asked")


def crawl(*paths: Path) -> tuple[list[RecordPage], list[Listing]]:
    adapter = PrivateAdapter(CrawlPolicy(base_url="", paths=paths))

    async def collect() -> list[RecordPage]:
        return [page async for page in adapter.refs(unreachable)]

    pages = asyncio.run(collect())
    refs = [ref for page in pages for ref in page.refs]
    return pages, [item for ref in refs for item in adapter.parse(ref.raw, ref)]


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_file_gives_its_servers_by_its_name_and_files_of_one_name_keep_them_apart(tmp_path):
    pages, (found,) = crawl(write(tmp_path / "desktop.json", CONFIG))
    assert found.native_id == "desktop.json#quill"
    assert (found.name, found.evidence) == ("quill", "mcpServers.quill")
    assert found.package is not None
    assert pages[-1].ended
    assert str(tmp_path) not in f"{pages}{found}"
    first = write(tmp_path / "a" / "mcp.json", CONFIG)
    second = write(tmp_path / "b" / "mcp.json", CONFIG)
    _, (one, two) = crawl(first, second)
    assert one.native_id == "mcp.json#quill"
    assert two.native_id.startswith("mcp.json~")
    assert two.native_id.endswith("#quill")


def test_a_file_with_comments_inputs_and_secrets_keeps_no_secret(tmp_path):
    _, (near, far) = crawl(write(tmp_path / "mcp.json", VS_CODE))
    assert read_inputs(near.env) == {
        "MODE": (False, False, "fast"),
        "PLAIN": (True, True, None),
        "QUILL_TOKEN": (True, True, None),
        "SITE": (True, False, None),
        "WHO": (True, True, None),
    }
    assert read_inputs(far.headers) == {"X-Who": (True, True, None)}
    assert (far.transport, far.url) == ("streamable-http", "https://quill.example/mcp")
    assert "hunter2" not in str(near)
    assert not {"multi_server"} & {*near.flags, *far.flags}  # that counts against none


def test_folders_are_read_without_following_links_in_circles(tmp_path):
    write(tmp_path / "a" / "one.json", CONFIG)
    write(tmp_path / "two.jsonc", CONFIG)
    write(tmp_path / "package.json", {"name": "not a config"})
    write(tmp_path / "node_modules" / "x.json", CONFIG)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "self.json").symlink_to(tmp_path / "a" / "self.json")
    pages, found = crawl(tmp_path, tmp_path / "two.jsonc")
    assert [item.native_id for item in found] == ["two.jsonc#quill", "a/one.json#quill"]
    rows = [row for page in pages for row in page.problems]
    assert [row["native_id"] for row in rows] == ["a/self.json"]


@cases(
    "content, hint",
    (b'{"mcpServers": {"a": "hunter2-hunter2', "not JSON"),
    (b"\xff\xfe\xfa", "not UTF-8"),
    (b"{}", "no `mcpServers`"),
    (b"[" * 5000, "not JSON"),
    (b" " * (4 * 1024 * 1024 + 1), "larger than"),
    (None, "it is not there"),
)
def test_a_file_that_cannot_be_read_is_a_row_and_the_others_are_kept(content, hint, tmp_path):
    bad = tmp_path / "bad.json"
    if content is not None:
        write(bad, content)
    pages, found = crawl(bad, write(tmp_path / "good.json", CONFIG))
    assert [item.native_id for item in found] == ["good.json#quill"]
    (row,) = [row for page in pages for row in page.problems]
    assert row["native_id"] == "bad.json"
    assert hint in row["hint"]
    assert "fix the file" in row["hint"]
    assert "hunter2" not in row["hint"]
    assert str(tmp_path) not in str(row)
    assert not any(page.ended for page in pages)  # what the bad file named is not gone


def test_a_link_is_followed_only_where_the_user_named_it(tmp_path):
    """A folder may be somebody else's checkout; a file that the setting names is the user's."""
    write(tmp_path / "own.json", CONFIG)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.json").symlink_to(tmp_path / "own.json")
    os.mkfifo(folder / "pipe.json")
    pages, found = crawl(folder)
    assert found == []
    rows = {row["native_id"]: row["hint"] for page in pages for row in page.problems}
    assert sorted(rows) == ["link.json", "pipe.json"]
    assert "it is a link" in rows["link.json"]
    assert "no plain file" in rows["pipe.json"]
    assert not any(page.ended for page in pages)
    _, (one,) = crawl(folder / "link.json")
    assert one.native_id == "link.json#quill"


def test_a_folder_of_the_setting_may_be_a_link(tmp_path):
    write(tmp_path / "folder" / "a" / "mcp.json", CONFIG)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    _, (one,) = crawl(tmp_path / "link")
    assert one.native_id == "a/mcp.json#quill"


def test_utf_16_and_a_byte_order_mark_are_read_and_no_paths_are_an_empty_list(tmp_path):
    text = json.dumps(CONFIG)
    for number, data in enumerate((text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode())):
        assert len(crawl(write(tmp_path / f"{number}.json", data))[1]) == 1
    pages, found = crawl()
    assert (found, pages[-1].ended) == ([], True)


@cases(
    "marketplace, endpoint, leaves",
    ("registry", "https://llm.example/v1", True),
    ("private", None, True),
    ("private", "https://mine.example/v1", True),
    ("private", "https://mine.example/v1/chat", True),
    ("private", "https://mine.example/v10", False),
    ("private", "https://mine.example/v1/../v2", False),
    ("private", "http://mine.example/v1", False),
    ("private", "https://mine.example:444/v1", False),
    ("private", "https://mine.example@evil.example/v1", False),
    ("private", "https://mine.example.evil.example/v1", False),
    ("private", "https://llm.example/v1", False),
    ("private", "export.jsonl", True),
    ("private", "other.jsonl", False),
    ("private", "https://[", False),
)
def test_private_rows_leave_only_for_what_is_approved(marketplace, endpoint, leaves):
    approved = ["https://mine.example/v1/", "export.jsonl"]
    assert is_endpoint_approved(marketplace, endpoint, approved) is leaves


@given(st.text(), st.lists(st.text()))
def test_nothing_private_leaves_without_approval(endpoint, approved):
    assert not is_endpoint_approved("private", endpoint, [])
    is_endpoint_approved("private", endpoint, approved)
