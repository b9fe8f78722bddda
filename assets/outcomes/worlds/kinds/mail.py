"""The kind `mail`: a Maildir, whose flags are in the names of its files."""

from collections import Counter
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from random import Random

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kinds.kind import Kind, add_fact, read_file_facts
from assets.outcomes.worlds.template import draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree
from warehouse.storage.digest import sha256

_FOLDERS = ("", ".Archive", ".Projects", ".Trash")  # Maildir++: the inbox is the folder itself
_PARTS = ("cur", "new", "tmp")
_START = 1_767_258_000


def generate_mailbox(rng: Random, size: int) -> Tree:
    """Messages in an inbox and two folders; some are unread (`new`), some are answered."""
    words, tree = load_words(), dict[str, Node]()
    tree |= {f"{folder}/{part}".lstrip("/"): None for folder in _FOLDERS for part in _PARTS}
    for number in range(1, size + 1):
        sender, topic = rng.choice(words["people"]), rng.choice(words["topics"])
        message = EmailMessage(policy=default.clone(linesep="\n"))
        message["From"] = f"{sender} <{sender.lower()}@example.com>"
        message["To"] = "worker@example.com"
        message["Subject"] = f"{topic.title()} {rng.choice(words['things'])} {number}"
        day = rng.randint(1, 28)
        message["Date"] = f"{day:02} Jan 2026 09:{number % 60:02}:00 +0000"
        message["Message-ID"] = f"<{number}.{topic}@example.com>"
        message.set_content(f"{draw_words('sentence', rng)}.\n\n{sender}\n")
        unread = number % 3 == 0
        folder = "" if number % 4 else rng.choice(_FOLDERS[1:3])
        flags = "" if unread else rng.choice((":2,S", ":2,RS"))
        name = f"{_START + number}.{number}.host{flags}"
        tree[f"{folder}/{'new' if unread else 'cur'}/{name}".lstrip("/")] = bytes(message)
    return tree


def read_mailbox(tree: Tree) -> Facts:
    """`FOLDER/MESSAGE-ID` -> subject, sender, whether it is new, flags, its file's name and a
    digest of it; the inbox is `INBOX`. What is no message is as in a folder."""
    facts, counts = Facts(), Counter[str]()
    others: dict[str, Node] = {}
    for path, node in tree.items():
        *above, name = path.split("/")
        part = above.pop() if above else ""
        if not isinstance(node, bytes) or part not in ("cur", "new"):
            others[path] = node
            continue
        key, value = _read_message("/".join(above), part, name, node)
        add_fact(facts, key, value, counts)
    return dict(sorted({**facts, **read_file_facts(others)}.items()))


def _read_message(folder: str, part: str, name: str, data: bytes) -> tuple[str, dict[str, object]]:
    message = message_from_bytes(data)  # headers as they stand, no part is decoded
    key = str(message.get("Message-ID", name)).strip().strip("<>")
    facts: dict[str, object] = {
        "subject": str(message.get("Subject", "")),
        "from": str(message.get("From", "")),
        "new": part == "new",
        "flags": "".join(sorted(name.partition(":2,")[2])),
        "sha256": sha256(data),
        "file": name,
    }
    return f"{folder.removeprefix('.') or 'INBOX'}/{key}", facts


KIND = Kind("mail", {"mailbox": generate_mailbox}, read_mailbox)
