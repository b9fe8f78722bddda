"""An exported environment: a folder that runs where OpenEnv or verifiers is installed.

OUT/  replay.jsonl tasks.jsonl contamination.jsonl export.json README.md   what the release tells
      *.py server/ openenv.yaml pyproject.toml                             copies of `package/`
"""

import json
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import assets.outcomes.replay_environment as replay_environment
from assets.outcomes.recording import write_recording
from assets.outcomes.replay_environment import score_calls
from extensions.environments.tasks import ReleaseTasks, find_contamination
from training.evaluation.metrics import MetricFigure, bootstrap_mean
from training.sets.split import SPLITS, TRAIN, Embed
from warehouse.errors import UnusableInput
from warehouse.sanitize.markdown import Markdown, fill_markdown, make_markdown_table
from warehouse.storage.digest import sha256

FACTS, TASKS, LIST, REPLAY = "export.json", "tasks.jsonl", "contamination.jsonl", "replay.jsonl"
_PACKAGE, _NAME = Path(__file__).with_name("package"), "toolmill_env"
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_RENAMED = {"pyproject.tmpl": "pyproject.toml", "Dockerfile.tmpl": "server/Dockerfile"}


def export_environment(
    made: ReleaseTasks, out: Path, release: Mapping[str, Any], embed: Embed | None, name: str = ""
) -> dict[str, Any]:
    """Writes the package to a new or empty folder; returns its facts. name: of the package, the
    folder's where none is given. Raises UnusableInput."""
    name = name or out.name
    if not _PLAIN_NAME.fullmatch(name):
        raise UnusableInput(
            f"--name {name[:60]!r}: a Python package is named by it; expected lower-case letters,"
            " digits and _, a letter first"
        )
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
        (beside / "README.md").write_text(render_card(facts, made.tasks, listed))
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
    """README.md of the folder, with the front matter that hubs read."""
    name = facts["name"]
    return fill_markdown(
        _CARD,
        name=name,
        names=name.replace("_", "-"),
        release=facts["release"][:12],
        training_set=facts["training_set"][:12],
        tasks=len(tasks),
        splits=_make_split_table(tasks, listed),
        near=facts["near"],
        scores=make_markdown_table(
            ("calls", "mean reward", "95% interval", "n"),
            [
                (kind, score["value"], f"{score['low']} to {score['high']}", score["n"])
                for kind, score in facts["scores"].items()
            ],
        ),
        left_out=make_markdown_table(("left out", "n"), facts["left_out"].items()),
        servers=make_markdown_table(
            ("server", "tasks"),
            Counter(w["server_id"] for task in tasks for w in task["worlds"]).most_common(),
        ),
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


_CARD = """\
---
tags:
- openenv
- verifiers
- tool-use
- toolmill
---

# {name}

{tasks} requests that are carried out with tools of real MCP servers, as an OpenEnv environment and
as a taskset of verifiers. Made by Toolmill from release `{release}`, training set `{training_set}`.

## Run it

```
pip install ".[openenv]"     # then: server --port 8000
pip install ".[verifiers]"   # then: vf-eval {names} --env.agent.runtime.type subprocess
```

Clients reset the OpenEnv server by `task_id`, by `split` and `index`, or by `seed`. A step is a
call of a tool; `finish_task` ends a task and brings the reward. The tools are served over MCP too.

`TOOLENV_MODE` decides how calls are answered:

- `replay` (default): as they were recorded, by contract, canonical arguments and state. **A call
  that was never recorded is a miss**: an error that says so, counted in the state. A score with
  misses is a lower bound (`known: false`).
- `live`: by the task's servers, in their worlds, in Toolmill's sandbox. It needs the command
  `toolmill` (`TOOLENV_PROGRAM`), and a home (`TOOLMILL_HOME`) with these servers.

`TOOLENV_SESSIONS` (16) clients may be served at once, each with a state of its own.

## Reward

0.2 for calls that fit their tool's schema, 0.3 for calls that were of use (shares), 0.5 where every
world ends in the requested state, and what was to be read was read. A task takes at most 32 calls.

{scores}

Perturbed calls are the task's own with one value changed.

## Tasks

{splits}

Splits are the release's. Proved: a world's check passed, which wrong calls fail. Observed: the
check is what the call came to when it ran. `contamination.jsonl` lists the tasks
outside `train` of which a contract or the request is trained on too; requests are compared by
{near}.

{servers}

{left_out}

## Limits

Requests are synthetic. Answers are third-party text: they were scanned and redacted, and are data
all the same. Tool texts belong to the servers' authors.
"""
