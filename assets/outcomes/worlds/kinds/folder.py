"""The kind `folder`: plain files, as an office, a vault of notes or a mail folder has them."""

import csv
import io
from random import Random

from assets.outcomes.worlds.kinds.kind import Kind, read_file_facts
from assets.outcomes.worlds.template import draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree

_FOLDERS = ("reports", "notes", "letters", "archive", "inbox")


def generate_office(rng: Random, size: int) -> Tree:
    """Reports, notes, letters and a few tables, in folders; `archive` is empty."""
    words, tree = load_words(), dict[str, Node](dict.fromkeys(_FOLDERS))
    topics = rng.sample(words["topics"], len(words["topics"]))
    for number in range(size):
        topic, person = topics[number % len(topics)], rng.choice(words["people"])
        place = number // len(topics) + 1
        folder = _FOLDERS[number % 3]
        path = f"{folder}/{topic}-{rng.choice(words['things'])}{f'-{place}' if place > 1 else ''}"
        if number % 4 == 3:
            tree[f"{path}.csv"] = _write_table(rng)
        else:
            tree[f"{path}.md"] = _write_text(rng, topic, person)
    tree["README.md"] = b"# Shared folder\n\nReports, notes and letters of the team.\n"
    return tree


def generate_vault(rng: Random, size: int) -> Tree:
    """Markdown notes with front matter, tags and links to each other."""
    words, tree = load_words(), dict[str, Node]()
    names = [f"{topic.title()} {rng.choice(words['things'])}" for topic in words["topics"][:size]]
    for number, name in enumerate(names):
        folder = ("Projects", "People", "Daily")[number % 3]
        linked = rng.choice([one for one in names if one != name] or [name])
        lines = ["---", f"title: {name}", f"owner: {rng.choice(words['people'])}"]
        lines += [f"status: {rng.choice(('active', 'waiting', 'done'))}", "---", f"# {name}", ""]
        lines += [f"{draw_words('sentence', rng)}.", "", f"See [[{linked}]]."]
        lines += ["", f"#{rng.choice(words['topics'])} #{rng.choice(words['colours'])}", ""]
        tree[f"{folder}/{name}.md"] = "\n".join(lines).encode()
    return tree


def _write_text(rng: Random, topic: str, person: str) -> bytes:
    lines = [f"# {topic.title()}", "", f"Owner: {person}", f"Amount: {rng.randint(100, 9900)}", ""]
    lines += [f"- {draw_words('sentence', rng)}" for _ in range(rng.randint(2, 5))]
    return ("\n".join(lines) + "\n").encode()


def _write_table(rng: Random) -> bytes:
    words, file = load_words(), io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("product", "city", "amount"))
    for product in rng.sample(words["products"], 5):
        table.writerow((product, rng.choice(words["cities"]), rng.randint(1, 90)))
    return file.getvalue().encode()


KIND = Kind("folder", {"office": generate_office, "vault": generate_vault}, read_file_facts)
