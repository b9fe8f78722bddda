"""`toolmill worlds list | reset | check`, without a server."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app
from tests.outcomes.worlds.files import SMALL, write_world


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOOLMILL_WORLDS__PATHS", json.dumps([str(tmp_path / "worlds")]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worlds").mkdir()
    return tmp_path


def toolmill(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["worlds", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_list_names_the_users_worlds_beside_ours(place: Path) -> None:
    write_world(place / "worlds")
    code, out, _ = toolmill("list", "--json")
    rows = {one["name"]: one for one in json.loads(out)["worlds"]}
    assert (code, rows["small"]["kind"], rows["small"]["servers"]) == (0, "folder", ["npm:files"])
    assert (rows["small"]["tools"], rows["small"]["tools_with_tasks"]) == (2, 2)
    assert rows["office-folder"]["why"] is None
    assert "small  folder  available" in toolmill("list")[1]


def test_a_file_that_cannot_be_used_is_listed_with_the_reason_and_costs_no_other(
    place: Path,
) -> None:
    write_world(place / "worlds")
    write_world(place / "worlds", SMALL.replace('"folder"', '"castle"'), "castle")
    code, out, _ = toolmill("list")
    assert code == 1
    assert "kind 'castle' does not exist" in out
    assert "small  folder  available" in out
    assert toolmill("reset", "small")[0] == 0
    assert toolmill("reset", "castle")[0] == 2


def test_a_reset_says_where_the_world_lies_and_makes_it_whole(place: Path) -> None:
    write_world(place / "worlds")
    code, out, _ = toolmill("reset", "small", "--json")
    told = json.loads(out)
    assert (code, told["facts"], told["seed"]) == (0, 3, 1)
    (Path(told["folder"]) / "a.txt").write_text("changed")
    assert json.loads(toolmill("reset", "small", "--json")[1]) == told
    assert (Path(told["folder"]) / "a.txt").read_text() == "first\n"
    assert Path(told["folder"]).is_relative_to(place / "home" / "worlds" / "small")
    code, out, _ = toolmill("reset", "small", "--fault", "gone", "--json")
    assert (code, json.loads(out)["facts"]) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("reset", "nowhere"), "no world is called 'nowhere'"),
        (("reset", "small", "--fault", "flood"), "has no fault 'flood'; known: gone, closed"),
        (("check", "nowhere", "--offline"), "no world is called 'nowhere'"),
        (("check", "small", "--server", "npm:none"), "--server 'npm:none' does not exist"),
    ],
)
def test_what_does_not_exist_is_usage(place: Path, arguments: tuple[str, ...], told: str) -> None:
    write_world(place / "worlds")
    code, _, err = toolmill(*arguments)
    assert code == 2
    assert told in err
    assert "Traceback" not in err


def test_a_check_without_servers_compares_resets(place: Path) -> None:
    path = write_world(place / "worlds")
    code, out, _ = toolmill("check", "small", "--offline", "--json")
    (row,) = json.loads(out)["worlds"]
    assert (code, row["status"], row["tasks_made"], len(row["digests"])) == (0, "ok", 4, 2)
    path.write_text(SMALL.replace('key = "*.txt"', 'key = "*.pdf"'))
    code, out, _ = toolmill("check", "small", "--offline", "--json")
    (row,) = json.loads(out)["worlds"]
    assert (code, row["status"]) == (1, "failed")
    assert "no fact matches '*.pdf'" in row["why"]
