"""Git's own files: objects, trees, commits and the index, written and read without running git.

A repository that a server has written to is never given to a git of this host: its configuration
and hooks would run there.
"""

import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha1

from assets.outcomes.worlds.tree import Node

_MOST_OBJECT = 1 << 20
_MOST_PARTS = 20_000  # files and folders of a commit


def hash_object(kind: str, data: bytes) -> tuple[str, bytes]:
    """(its id, the bytes that are stored) of one object."""
    whole = f"{kind} {len(data)}\0".encode() + data
    return sha1(whole, usedforsecurity=False).hexdigest(), whole


def add_object(tree: dict[str, Node], kind: str, data: bytes) -> str:
    """Puts a loose object into `.git`; returns its id."""
    name, whole = hash_object(kind, data)
    # Stored, not deflated: zlib's output differs between its versions.
    tree[f".git/objects/{name[:2]}/{name[2:]}"] = zlib.compress(whole, 0)
    return name


def add_files(tree: dict[str, Node], files: Mapping[str, bytes]) -> str:
    """Puts the tree of a commit's files into `.git`; returns its id."""
    here: dict[str, bytes] = {}
    below: dict[str, dict[str, bytes]] = {}
    for path, data in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = data
        else:
            here[name] = data
    entries = [("100644", name, add_object(tree, "blob", data)) for name, data in here.items()]
    entries += [("40000", name, add_files(tree, inner)) for name, inner in below.items()]
    entries.sort(key=lambda one: one[1] + "/" * (one[0] == "40000"))
    made = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(of) for mode, name, of in entries)
    return add_object(tree, "tree", made)


def add_commit(
    tree: dict[str, Node],
    files: Mapping[str, bytes],
    parent: str | None,
    who: str,
    at: int,
    text: str,
) -> str:
    """Puts a commit into `.git`; returns its id. who: `Name <address>`; at: seconds since 1970."""
    lines = [f"tree {add_files(tree, files)}", *([f"parent {parent}"] if parent else [])]
    lines += [f"author {who} {at} +0000", f"committer {who} {at} +0000", "", text, ""]
    return add_object(tree, "commit", "\n".join(lines).encode())


def write_index(files: Mapping[str, bytes]) -> bytes:
    """An index of version 2 that holds the files, without what their stat is: git looks itself."""
    made = b"DIRC" + (2).to_bytes(4, "big") + len(files).to_bytes(4, "big")
    for path in sorted(files, key=str.encode):
        name, path_bytes = hash_object("blob", files[path])[0], path.encode()
        entry = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(12) + bytes.fromhex(name)
        entry += min(len(path_bytes), 0xFFF).to_bytes(2, "big") + path_bytes
        made += entry + bytes(8 - len(entry) % 8)
    return made + sha1(made, usedforsecurity=False).digest()


def read_index(data: bytes) -> dict[str, str]:
    """Path -> id of what is staged; a conflict's sides as `path#stage`. Raises ValueError for an
    index of another version, or none."""
    if data[:4] != b"DIRC" or int.from_bytes(data[4:8], "big") not in (2, 3):
        raise ValueError("no index of version 2 or 3")
    found, at = dict[str, str](), 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags = int.from_bytes(data[at + 60 : at + 62], "big")
        start = at + (64 if flags & 0x4000 else 62)
        end = data.index(b"\0", start)
        stage = flags >> 12 & 3
        path = data[start:end].decode("utf-8", "replace") + (f"#{stage}" if stage else "")
        found[path] = data[at + 40 : at + 60].hex()
        at = end + 8 - (end - at) % 8
    return found


def read_object(tree: Mapping[str, Node], name: str) -> tuple[str, bytes] | None:
    """(kind, data) of a loose object; None where it is in a pack, missing, or not what its name
    says."""
    stored = tree.get(f".git/objects/{name[:2]}/{name[2:]}")
    if not isinstance(stored, bytes):
        return None
    try:
        whole = zlib.decompressobj().decompress(stored, _MOST_OBJECT)
    except zlib.error:
        return None
    head, _, data = whole.partition(b"\0")
    if sha1(whole, usedforsecurity=False).hexdigest() != name:
        return None
    return head.decode("ascii", "replace").partition(" ")[0], data


def list_commit_files(tree: Mapping[str, Node], name: str) -> dict[str, str]:
    """Path -> id of all files of a tree object; a part that cannot be read stands for itself, and
    so does one of more than 20,000 parts: folders that hold one another many times have no end."""
    found: dict[str, str] = {}
    left, seen = [("", name)], 0
    while left:
        if (seen := seen + 1) > _MOST_PARTS or len(found) > _MOST_PARTS:
            return {"?": name}
        above, one = left.pop()
        read = read_object(tree, one)
        if read is None:
            found[f"{above}?"] = one
            continue
        for mode, part, of in _split_tree(read[1]):
            if mode == "40000":
                left.append((f"{above}{part}/", of))
            else:
                found[above + part] = of
    return dict(sorted(found.items()))


def _split_tree(data: bytes) -> Iterator[tuple[str, str, str]]:
    """(mode, name, id) of the entries of a tree object."""
    while data:
        head, _, rest = data.partition(b"\0")
        mode, _, name = head.decode("utf-8", "replace").partition(" ")
        yield mode, name, rest[:20].hex()
        data = rest[20:]
