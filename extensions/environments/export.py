"""An exported environment: a folder that runs where OpenEnv or verifiers is installed.

OUT/  replay.jsonl tasks.jsonl contamination.jsonl export.json README.md   what the release tells
      *.py server/ openenv.yaml pyproject.toml                             copies of `package/`
"""

import json
import keyword
import re
import shutil
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import extensions.environments.replay_environment as replay_environment
from extensions.environments.recording import write_recording
from extensions.environments.replay_environment import score_calls
from extensions.environments.tasks import ReleaseTasks, find_contamination
from training.evaluation.metrics import MetricFigure, bootstrap_mean
from training.sets.split import SPLITS, TRAIN, Embed
from warehouse.errors import UnusableInput
from warehouse.sanitize.markdown import Markdown, fill_markdown, make_markdown_table
from warehouse.storage.digest import sha256

FACTS, TASKS, LIST, REPLAY = "export.json", "tasks.jsonl", "contamination.jsonl", "replay.jsonl"
_PACKAGE, _NAME = Path(__file__).with_name("package"), "toolmill_env"
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_TAKEN = {
    *(*keyword.kwlist, *sys.stdlib_module_names),
    *("jsonschema", "mcp", "openenv", "pydantic", "referencing", "rfc8785", "uvicorn", "verifiers"),
}
_RENAMED = {"pyproject.tmpl": "pyproject.toml", "Dockerfile.tmpl": "server/Dockerfile"}


def export_environment(
    made: ReleaseTasks, out: Path, release: Mapping[str, Any], embed: Embed | None
) -> dict[str, Any]:
    """Writes the package, which the folder names, to a new or empty folder; returns its facts.
    embed None compares requests by words alone. Raises UnusableInput."""
    name = out.resolve().name
    if not _PLAIN_NAME.fullmatch(name):
        raise UnusableInput(
            f"{name[:60]!r}: the folder names a Python package; expected lower-case letters,"
            " digits and _, a letter first"
        )
    if name in _TAKEN:
        raise UnusableInput(f"{name!r}: it is Python's or of a package that it needs")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnusableInput(f"{out}: it is there and not empty; give a new or an empty folder")
    listed = find_contamination(made, embed)
    figures = score_tasks(made)
    beside = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        _copy_package(beside, name)
        write_recording(beside / REPLAY, made.recording)
        _write_lines(beside / TASKS, made.tasks)
        _write_lines(beside / LIST, listed)
        facts = {
            "format": "toolmill-environment",
            "version": 1,
            "name": name,
            "release": release["release"],
            "training_set": release["training_set"],
            "exported_at": time.time(),
            "tasks": len(made.tasks),
            "splits": dict(Counter(task["split"] for task in made.tasks)),
            "left_out": made.left_out,
            "contaminated": len(listed),
            "near": "words and vectors" if embed else "words alone",
            "scores": {kind: figure.as_dict() for kind, figure in figures.items()},
            "files": {f: sha256((beside / f).read_bytes()) for f in (REPLAY, TASKS, LIST)},
        }
        (beside / FACTS).write_text(json.dumps(facts, indent=1))
        with (beside / "README.md").open("a") as card:
            card.write(render_card(facts, made.tasks, listed))
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return facts


def score_tasks(made: ReleaseTasks) -> dict[str, MetricFigure]:
    """Mean rewards: of the tasks' own calls, and of those with one value changed; a task without a
    value to change is in the first alone."""
    scores: dict[str, list[tuple[str, float]]] = {"reference": [], "perturbed": []}
    for task in made.tasks:
        for kind, values in scores.items():
            if (calls := task[kind]) is not None:
                reward = score_calls(made.recording, task["id"], calls)[0].reward
                values.append((task["worlds"][0]["server_id"], reward))
    return {
        kind: bootstrap_mean([value for _, value in values], [group for group, _ in values])
        for kind, values in scores.items()
    }


def render_card(
    facts: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    listed: Sequence[Mapping[str, Any]],
) -> Markdown:
    """The part of README.md that tells of this export."""
    scores = [
        (kind, score["value"], f"{score['low']} to {score['high']}", score["n"])
        for kind, score in facts["scores"].items()
    ]
    servers = Counter(world["server_id"] for task in tasks for world in task["worlds"])
    return fill_markdown(
        "\n## This export\n\n{} tasks of release {}, training set {}. Requests were compared by"
        " {}.\n\n{}\n\n{}\n\n{}\n\n{}\n",
        len(tasks),
        facts["release"][:12],
        facts["training_set"][:12],
        facts["near"],
        make_markdown_table(("calls", "mean reward", "95% interval", "n"), scores),
        _make_split_table(tasks, listed),
        make_markdown_table(("server", "tasks"), servers.most_common()),
        make_markdown_table(("left out", "n"), facts["left_out"].items()),
    )


def _make_split_table(
    tasks: Sequence[Mapping[str, Any]], listed: Sequence[Mapping[str, Any]]
) -> Markdown:
    rows = []
    for split in SPLITS:
        here = [task for task in tasks if task["split"] == split]
        checks = Counter(task["check"] for task in here)
        flagged = [entry for entry in listed if entry["split"] == split]
        by = [sum(bool(entry[kind]) for entry in flagged) for kind in ("contracts", "requests")]
        known = ("-", "-") if split == TRAIN else by
        rows.append((split, len(here), checks["proved"], checks["observed"], *known))
    return make_markdown_table(
        ("split", "tasks", "proved", "observed", "contract trained on", "request trained on"), rows
    )


def _copy_package(out: Path, name: str) -> None:
    """The package's files under its own name, and the environment that they play."""
    sources = {path: path.relative_to(_PACKAGE) for path in sorted(_PACKAGE.rglob("*"))}
    sources[Path(replay_environment.__file__)] = Path("replay_environment.py")
    for path, place in sources.items():
        if path.is_file() and "__pycache__" not in place.parts:
            target = out / _RENAMED.get(str(place), place)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text(encoding="utf-8").replace(_NAME, name))


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
