"""Git's own files, written and read without running git: a server may have left hooks in them."""

import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha1
from random import Random

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kind import WorldKind, read_file_facts
from assets.outcomes.worlds.template import draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree, WorldFailed

_MOST_OBJECT = 1 << 20
_MOST_READ = 64 << 20  # bytes of all objects that are read, a kilobyte at least for each
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
        name, slash, inner_path = path.partition("/")
        if slash:
            below.setdefault(name, {})[inner_path] = data
        else:
            here[name] = data
    entries = [("100644", name, add_object(tree, "blob", data)) for name, data in here.items()]
    entries += [("40000", name, add_files(tree, inner)) for name, inner in below.items()]
    entries.sort(key=lambda entry: entry[1] + "/" * (entry[0] == "40000"))
    encoded = b"".join(
        f"{mode} {name}\0".encode() + bytes.fromhex(of) for mode, name, of in entries
    )
    return add_object(tree, "tree", encoded)


def write_index(files: Mapping[str, bytes]) -> bytes:
    """An index of version 2 that holds the files, without what their stat is: git looks itself."""
    encoded = b"DIRC" + (2).to_bytes(4, "big") + len(files).to_bytes(4, "big")
    for path in sorted(files, key=str.encode):
        name, path_bytes = hash_object("blob", files[path])[0], path.encode()
        entry = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(12) + bytes.fromhex(name)
        entry += min(len(path_bytes), 0xFFF).to_bytes(2, "big") + path_bytes
        encoded += entry + bytes(8 - len(entry) % 8)
    return encoded + sha1(encoded, usedforsecurity=False).digest()


def read_index(data: bytes) -> dict[str, str]:
    """Path -> id of what is staged; a conflict's sides as `path#stage`. Raises ValueError for an
    index of another version, or none."""
    if data[:4] != b"DIRC" or int.from_bytes(data[4:8], "big") not in (2, 3):
        raise ValueError("no index of version 2 or 3")
    entries, at = dict[str, str](), 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags = int.from_bytes(data[at + 60 : at + 62], "big")
        start = at + (64 if flags & 0x4000 else 62)
        end = data.index(b"\0", start)
        stage = flags >> 12 & 3
        path = data[start:end].decode("utf-8", "replace") + (f"#{stage}" if stage else "")
        entries[path] = data[at + 40 : at + 60].hex()
        at = end + 8 - (end - at) % 8
    return entries


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


class MeteredReader:
    """Reads loose objects, up to a limit. Raises WorldFailed beyond it."""

    def __init__(self, tree: Mapping[str, Node]) -> None:
        self._tree, self._left = tree, _MOST_READ

    def __call__(self, name: str) -> tuple[str, bytes] | None:
        result = read_object(self._tree, name)
        self._left -= 1024 + (len(result[1]) if result else 0)
        if self._left < 0:
            raise WorldFailed(f"its history takes more than {_MOST_READ >> 20} MB to read")
        return result


def list_commit_files(read: MeteredReader, name: str) -> dict[str, str]:
    """Path -> id of all files of a tree object; `?` for what cannot be read or has no end."""
    files: dict[str, str] = {}
    left, visited = [("", name)], 0
    while left:
        above, current = left.pop()
        entries = read(current)
        if entries is None:
            files[f"{above}?"] = current
            continue
        for mode, part, of in _split_tree(entries[1]):
            if (visited := visited + 1) > _MOST_PARTS:
                return {"?": name}
            if mode == "40000":
                left.append((f"{above}{part}/", of))
            else:
                files[above + part] = of
    return dict(sorted(files.items()))


def _split_tree(data: bytes) -> Iterator[tuple[str, str, str]]:
    at = 0
    while at < len(data):
        end = data.find(b"\0", at)
        end = len(data) if end < 0 else end
        mode, _, name = data[at:end].decode("utf-8", "replace").partition(" ")
        yield mode, name, data[end + 1 : end + 21].hex()
        at = end + 21


_MOST_REFS = 200  # the history of each is read
_START, _DAY = 1_767_258_000, 86_400  # 2026-01-01 09:00 UTC
_CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = false
\tbare = false
[user]
\tname = Mill Worker
\temail = worker@example.com
"""
# What git writes for itself at every command: times, and where a name once stood.
_LEFT_OUT = (".git/logs", ".git/index", ".git/objects", ".git/refs", ".git/packed-refs")
_EPHEMERAL = (".git/COMMIT_EDITMSG", ".git/ORIG_HEAD", ".git/HEAD", ".git/FETCH_HEAD")


def generate_project(rng: Random, size: int) -> Tree:
    """A history of `size` commits on `main`, with branches, and changed, staged and new files."""
    words, tree = load_words(), dict[str, Node]()
    files = {"README.md": b"# Project\n", "src/main.py": b"print('start')\n"}
    topics = rng.sample(words["topics"], len(words["topics"]))
    parent, commits, branches = None, list[str](), dict[str, str]()
    for number in range(size):
        topic = topics[number % len(topics)]
        person = f"{rng.choice(words['people'])} {rng.choice(words['surnames'])}"
        path = f"docs/{topic}.md" if number % 2 else f"src/{topic}.py"
        files = {**files, path: f"# {topic}\n{draw_words('sentence', rng)}\n".encode()}
        who = f"{person} <{person.split()[0].lower()}@example.com>"
        at = _START + number * _DAY
        # Puts a commit into `.git`; returns its id. who: `Name <address>`; at: seconds since 1970.
        lines = [f"tree {add_files(tree, files)}", *([f"parent {parent}"] if parent else [])]
        lines += [
            f"author {who} {at} +0000",
            f"committer {who} {at} +0000",
            "",
            f"Add the {topic} part ({number + 1})",
            "",
        ]
        parent = add_object(tree, "commit", "\n".join(lines).encode())
        commits.append(parent)
    for name in rng.sample(words["colours"], 3):
        branches[f"topic/{name}"] = rng.choice(commits[len(commits) // 2 :])
    refs = {"main": str(parent), **branches}
    tree |= {f".git/refs/heads/{name}": f"{of}\n".encode() for name, of in refs.items()}
    tree |= {".git/HEAD": b"ref: refs/heads/main\n", ".git/config": _CONFIG.encode()}
    tree |= dict.fromkeys((".git/refs/tags", ".git/objects/info", ".git/objects/pack"))
    tree |= {".git/description": b"A small project\n", ".git/info/exclude": b"*.log\n"}
    staged = {**files, "NOTICE.md": f"{draw_words('sentence', rng)}\n".encode()}
    tree |= {**staged, ".git/index": write_index(staged)}
    add_object(tree, "blob", staged["NOTICE.md"])
    for path in rng.sample(sorted(file for file in files if file.startswith("docs/")), 2):
        tree[path] = files[path] + f"{draw_words('sentence', rng)}\n".encode()
    for topic in rng.sample(words["things"], 3):
        tree[f"drafts/{topic}.txt"] = f"{draw_words('sentence', rng)}\n".encode()
    return tree


def read_repository(tree: Tree) -> Facts:
    """`HEAD`; `branch/NAME` -> its tip's message and author, and how many commits it has;
    `branch/NAME:PATH` -> blob, and the same of `tag/NAME`; `staged/PATH` -> blob; the working
    tree's files as in a folder; what else is in `.git` (configuration, hooks). Commit ids and times
    are left out, and so are reflogs: the same work has the same facts whenever it is done. Packed
    history reads as missing."""
    facts = read_file_facts({path: node for path, node in tree.items() if not _is_gits(path)})
    head = tree.get(".git/HEAD")
    head_text = head.decode("utf-8", "replace").strip() if isinstance(head, bytes) else "none"
    refs = _list_refs(tree)
    if head_text.startswith("ref: "):
        facts["HEAD"] = head_text
    else:
        refs["HEAD"] = head_text
    if len(refs) > _MOST_REFS:
        raise WorldFailed(f"more than {_MOST_REFS} branches and tags")
    read = MeteredReader(tree)
    for name, commit in refs.items():
        facts |= _describe_tip(read, name, commit)
    index = tree.get(".git/index")
    try:
        staged = read_index(index) if isinstance(index, bytes) else {}
    except (ValueError, IndexError) as error:
        staged = {"unreadable": str(error)}
    facts |= {f"staged/{path}": blob for path, blob in staged.items()}
    return dict(sorted(facts.items()))


def _is_gits(path: str) -> bool:
    """Whether it is told of otherwise, or not at all."""
    exact = path == ".git" or path in _EPHEMERAL
    return exact or any(path == item or path.startswith(f"{item}/") for item in _LEFT_OUT)


def _list_refs(tree: Tree) -> dict[str, str]:
    """`branch/NAME` and `tag/NAME` -> commit; a loose reference counts before a packed one."""
    packed, refs = tree.get(".git/packed-refs"), dict[str, str]()
    for line in packed.decode("utf-8", "replace").splitlines() if isinstance(packed, bytes) else []:
        commit, _, name = line.partition(" ")
        if not line.startswith(("#", "^")):
            refs[name] = commit
    for path, node in tree.items():
        if path.startswith(".git/refs/") and isinstance(node, bytes):
            refs[path.removeprefix(".git/")] = node.decode("utf-8", "replace").strip()
    return {_shorten_ref(name): commit for name, commit in refs.items()}


def _shorten_ref(name: str) -> str:
    for old, new in {"refs/heads/": "branch/", "refs/tags/": "tag/"}.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def _describe_tip(read: MeteredReader, name: str, commit: str) -> Facts:
    """The facts of a reference: what its commit holds, without its id and times."""
    tip_object = read(commit)
    if tip_object is None or tip_object[0] != "commit":
        return {name: {"missing": True}}
    head, _, message = tip_object[1].decode("utf-8", "replace").partition("\n\n")
    lines = {line.partition(" ")[0]: line.partition(" ")[2] for line in head.split("\n")}
    tip = {
        "message": message.strip(),
        "author": lines.get("author", "").partition(" <")[0],
        "commits": _count_commits(read, commit),
    }
    files = list_commit_files(read, lines.get("tree", ""))
    return {name: tip, **{f"{name}:{path}": blob for path, blob in files.items()}}


def _count_commits(read: MeteredReader, commit: str) -> int:
    visited, left = set[str](), [commit]
    while left and len(visited) < 10_000:
        current = left.pop()
        item = read(current) if current not in visited else None
        if item is not None:
            visited.add(current)
            head = item[1].partition(b"\n\n")[0].decode("utf-8", "replace")
            left += [line[7:] for line in head.split("\n") if line.startswith("parent ")]
    return len(visited)


GIT_KIND = WorldKind("git", {"project": generate_project}, read_repository, programs={"git": "git"})
