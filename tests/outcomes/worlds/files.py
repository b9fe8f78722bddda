"""World files for tests: a small one, and what is changed in it."""

from pathlib import Path

SMALL = """
name = "small"
kind = "folder"
about = "Two files and a folder."
files = "seed"

[[servers]]
id = "npm:files"
args = ["{root}"]
env = { WHERE = "{root}/a.txt" }
tools = ["write_file", "read_file"]

[[tasks]]
name = "write"
requests = ["Write {word} into {root}/sub/{word}.txt."]
draw.word = { words = "cities" }
calls = [
  { tool = "write_file", arguments = { path = "{root}/sub/{word}.txt", content = "{word}" } },
]
changes = [{ add = "sub/{word}.txt", to = "{word}" }]

[[tasks]]
name = "read"
requests = ["Read {root}/{file}."]
draw.file = { key = "*.txt" }
calls = [{ tool = "read_file", arguments = { path = "{root}/{file}" } }]
answer = ["{file.value}"]
"""


def write_world(folder: Path, text: str = SMALL, name: str = "small") -> Path:
    """The path of a world file with its seed files beside it."""
    (folder / "seed" / "sub").mkdir(parents=True, exist_ok=True)
    (folder / "seed" / "a.txt").write_text("first\n")
    (folder / "seed" / "sub" / "b.txt").write_text("second\n")
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path
