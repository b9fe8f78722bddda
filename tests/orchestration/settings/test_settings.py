"""Settings: one file, one environment, no secret printed, no typo accepted; those of a server
written into toolmill.toml."""

import json
import os
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

from assets.marketplaces.installed import list_installed
from assets.servers.sandbox.contained_browser import open_browser_sandbox
from extensions.bench.ablation_run import choose_ablation_settings
from orchestration.cli.crawling import change_demo
from orchestration.factories import list_enabled, make_crawl_policy, make_trainer, make_writer
from orchestration.settings.deploy_policy import make_deploy_policy
from orchestration.settings.load import (
    SettingsError,
    list_known_names,
    list_secret_names,
    load_settings,
)
from orchestration.settings.model import Settings
from orchestration.settings.schema import KEYS
from orchestration.settings.server_changes import write_server_settings
from tests.support.cases import cases
from tests.support.paths import ROOT
from training.sets.split import SetPolicy


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """toolmill.toml of the working directory, which is not there yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "toolmill.toml"


def test_defaults_need_nothing_and_call_no_model():
    settings = load_settings()
    assert settings.source == "demo"
    assert {settings.roles.generator.model, settings.roles.judge.model} == {"offline"}
    assert settings.state_path() == settings.home_path() / "state"


def test_the_environment_overrides_the_file_and_one_name_keeps_the_others(file, monkeypatch):
    file.write_text(
        'budget_usd = 1.5\n[roles.judge]\nmodel = "from-file"\n[synthesis]\npairs_per_tool = 4\n'
    )
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "from-environment")
    settings = load_settings()
    assert settings.roles.judge.model == "from-environment"
    assert (settings.budget_usd, settings.synthesis.pairs_per_tool) == (1.5, 4)
    file.write_text("[marketplaces.mcpso]\npage_cap = 3\n")
    monkeypatch.setenv("TOOLMILL_MARKETPLACES__GLAMA__API_KEY", "very-secret")
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "a-model")
    settings = load_settings()
    glama, mcpso = settings.marketplaces.glama, settings.marketplaces.mcpso
    assert (glama.scope, glama.keys()) == (("connectors",), {"api_key": "very-secret"})
    assert (mcpso.page_cap, mcpso.base_url) == (3, "https://mcp.so")
    assert settings.roles.judge.temperature == 0.0
    assert "very-secret" not in json.dumps(settings.public())


def test_a_package_of_the_users_own_adds_a_marketplace(monkeypatch):
    names = (*list_installed(), "acme")
    for module in ("orchestration.settings.schema", "orchestration.factories"):
        monkeypatch.setattr(f"{module}.list_installed", lambda: names)
    list_known_names.cache_clear()
    try:
        monkeypatch.setenv("TOOLMILL_MARKETPLACES__ACME__BASE_URL", "https://acme.example")
        monkeypatch.setenv("TOOLMILL_MARKETPLACES__ACME__PRIORITY", "1")
        monkeypatch.setenv("TOOLMILL_SOURCE", "live")
        settings = load_settings()
        assert list_enabled(settings)[0] == "acme"
        assert make_crawl_policy(settings, "acme").base_url == "https://acme.example"
    finally:
        list_known_names.cache_clear()


def test_the_demo_reads_every_site_that_lists_something_and_needs_no_key(monkeypatch):
    assert len(list_enabled(load_settings())) == 10
    monkeypatch.setenv("TOOLMILL_DEMO__SCALE", "small")
    settings = load_settings()
    assert list_enabled(settings) == ["registry", "mcpso", "private"]
    policy = make_crawl_policy(settings, "glama")
    assert policy.keys
    assert policy.allow_loopback
    monkeypatch.setenv("TOOLMILL_SOURCE", "live")
    live = make_crawl_policy(load_settings(), "glama")
    facts = ({}, False, "https://glama.ai/api/mcp")
    assert (live.keys, live.allow_loopback, live.base_url) == facts


def test_pages_are_rendered_in_the_sandbox_and_private_files_run_unless_turned_off(monkeypatch):
    assert make_crawl_policy(load_settings(), "mcpso").contain is open_browser_sandbox
    assert "private" in list_enabled(load_settings())
    monkeypatch.setenv("TOOLMILL_SANDBOX__BACKEND", "none")
    monkeypatch.setenv("TOOLMILL_MARKETPLACES__PRIVATE__ENABLED", "false")
    assert make_crawl_policy(load_settings(), "mcpso").contain is None
    assert "private" not in list_enabled(load_settings())


def test_no_secret_is_printed(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret-1")
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__API_KEY", "very-secret-2")
    monkeypatch.setenv("TOOLMILL_ALERTS__WEBHOOK", "https://hooks.example.com/very-secret-3")
    settings = load_settings()
    assert settings.openai_api_key
    assert settings.openai_api_key.get_secret_value() == "very-secret-1"
    assert "very-secret" not in json.dumps(settings.public())


NO_NUMBER = r"in toolmill\.toml\): expected a number \(found '"


@cases(
    "text, variable, message",
    ("[marketplaces.acme]\npage_cap = 3\n", "", "'acme' is installed; known: registry"),
    ("[synthesis]\npairs_per_tol = 4\n", "", r"synthesis\.pairs_per_tol.*did you mean"),
    ("home = \n", "", r"toolmill\.toml: not TOML"),
    ("budget_usd = true", "", NO_NUMBER),
    ("[retention]\ndays = false", "", NO_NUMBER),
    ("", "MARKETPLACES__ACME__ENABLED=1", "ACME__ENABLED: no such marketplace; known: registry"),
    ("", "HOEM=1", "HOEM: no such setting; did you mean TOOLMILL_HOME"),
    ("", "SANDBOX__MEMROY_MB=1", "did you mean TOOLMILL_SANDBOX__MEMORY_MB"),
    ("", "ROLES__GENERATER__MODEL=1", "did you mean TOOLMILL_ROLES__GENERATOR__MODEL"),
    ("", "SANDBOX__MEMORY_MB=lots", "TOOLMILL_SANDBOX__MEMORY_MB.*'lots'"),
    ("", "SANDBOX__MEMORY_MB=63", "TOOLMILL_SANDBOX__MEMORY_MB.*expected .* or more"),
    ("", "SANDBOX__PROCESSES=3", "TOOLMILL_SANDBOX__PROCESSES.*expected .* or more"),
    ("", "SANDBOX__WALL_S=0", "TOOLMILL_SANDBOX__WALL_S.*expected .* or more"),
    ("", "MARKETPLACES__PRIVATE__PATHS=mcp.json", "__PRIVATE__PATHS: .*a list"),
    ("", "MARKETPLACES__MCPSO__REQUESTS_PER_SECOND=0", "REQUESTS_PER_SECOND.*greater than 0"),
    ("", "TRAINING__RETRIEVER__LEARNING_RATE=5", "less than or equal to 1 .found '5'"),
    ("", "TRAINING__RETRIEVER__TOOLS=0", "TRAINING__RETRIEVER__TOOLS.*greater than or equal to 1"),
    ("", "TRAINING__CALLER__LEARNING_RATE=0", "CALLER__LEARNING_RATE.*greater than 0"),
    ("", "TRAINING__CALLER__BASE=Qwen/Qwen3-0.6B", "CALLER__BASE.*expected Qwen/Qwen3-0.6B@<comm"),
    ("", "TRAINING__SIDECAR__RANK=8", "RANK.* has 16; leave it out, or set profile to mcp-flow"),
    ("", "TRAINING__PLACE__RUNS_ON=slurm", "'subprocess', 'ray' or 'kubernetes'.*slurm"),
    *(
        ("", f"TRAINING__PLACE__BUCKET=s3://{url}", r"^((?!KEY).)*, expected s3://((?!KEY).)*$")
        for url in ("", "UP/x", "b-t/../x", "b-t/a b", "KEY:S@b-t/p", "KEY:S/b-t/p")
    ),
)
def test_a_setting_that_cannot_be_used_is_named(file, monkeypatch, text, variable, message):
    file.write_text(text)
    if variable:
        name, _, value = variable.partition("=")
        monkeypatch.setenv(f"TOOLMILL_{name}", value)
    with pytest.raises(SettingsError, match=message):
        load_settings()


SECRET = "SEKRET-4711"


@cases(
    "text, named",
    (f'[marketplaces.nosuch]\nenabled = true\n[marketplaces.glama]\napi_key = "{SECRET}"\n',
     "no adapter 'nosuch' is installed"),
    (f'[roles]\njudge = ["{SECRET}"]\n', "TOOLMILL_ROLES__JUDGE"),
    (f'roles = "{SECRET}"\n', "TOOLMILL_ROLES"),
    (f'[marketplaces.glama]\nclient_secret = ["{SECRET}"]\n', "CLIENT_SECRET"),
    (f'[sandbox]\nmemory_mb = {{ a = "{SECRET}" }}\n', "TOOLMILL_SANDBOX__MEMORY_MB"),
    (f'[sandbox]\nfetch_hosts = [{{ a = "{SECRET}" }}]\n', "TOOLMILL_SANDBOX__FETCH_HOSTS"),
    (f'[marketplaces.glama]\napikey = "{SECRET}"\n', "marketplaces.glama.apikey"),
    (f'[servers."npm:x"]\nenv = "{SECRET}"\n', "servers.npm:x"),
    (f'openai_api_key = ["{SECRET}"]\n', "OPENAI_API_KEY"),
)  # fmt: skip
def test_an_error_is_one_short_line_and_shows_no_other_setting(file, text, named):
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    [line] = str(caught.value).splitlines()
    assert named in line
    assert len(line) < 400
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_every_secret_setting_is_hidden_in_errors(file):
    hidden = list_secret_names()
    assert {"openai_api_key", "serve.http.token", "roles.judge.api_key"} < hidden
    assert {f"marketplaces.glama.{name}" for name in KEYS} < hidden
    for name in hidden:
        block, _, leaf = name.rpartition(".")
        table = f"[{block}]\n" if block else ""
        file.write_text(f"{table}{leaf} = 4711\n")
        with pytest.raises(SettingsError) as caught:
            load_settings()
        assert name in str(caught.value)
        assert "4711" not in str(caught.value)


def test_a_long_wrong_value_is_cut_and_one_that_is_no_json_is_not_shown(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TOOLMILL_SANDBOX__MEMORY_MB", "lots\n" * 1000)
        with pytest.raises(SettingsError, match=r"SANDBOX__MEMORY_MB.*'lots") as caught:
            load_settings()
    assert len(str(caught.value)) < 300
    monkeypatch.setenv("TOOLMILL_ROLES", f"{{{SECRET}")
    with pytest.raises(SettingsError, match=r"TOOLMILL_ROLES: .*not JSON") as caught:
        load_settings()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@cases("name, problem", ("nope.toml", r"nope\.toml, .*no such file"), ("", "no file"))
def test_a_named_file_that_is_not_there_is_an_error(file, monkeypatch, name, problem):
    monkeypatch.setenv("TOOLMILL_CONFIG", str(file.parent / name))
    with pytest.raises(SettingsError, match=f"TOOLMILL_CONFIG names .*{problem}"):
        load_settings()


@cases(
    "day, scale, named",
    (3, None, "--day: Input should be 1 or 2 (found 3)"),
    (None, "huge", "--scale: Input should be 'small', 'standard' or 'large' (found 'huge')"),
)
def test_a_wrong_option_of_the_demo_is_one_line(day, scale, named):
    with pytest.raises(SettingsError) as caught:
        change_demo(load_settings(), day, scale)
    assert str(caught.value) == named


def test_a_servers_secret_is_named_by_its_source_and_never_written_down(file):
    file.write_text('[servers."npm:x"]\nnetwork = "full"\nenv = { KEY = "env:MY_TOKEN" }\n')
    server = load_settings().servers["npm:x"]
    assert (server.network, server.env) == ("full", {"KEY": "env:MY_TOKEN"})
    file.write_text('[servers."npm:x"]\nenv = { KEY = "hunter2hunter2" }\n')
    with pytest.raises(SettingsError, match="KEY: expected env:NAME or file:PATH") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


@cases(
    "text, told",
    ('folders = ["notes"]', "expected a full path"),
    ('folders = ["/"]', "is a home folder"),
    ('folders = ["~/"]', "is a home folder"),
    ('hosts = ["https://a.example"]', "its scheme"),
    ('network = "full"\nhosts = ["a.example"]', "leave one of the two out"),
)
def test_what_is_never_granted_is_refused_with_its_servers_name(file, text, told):
    file.write_text(f'[servers."npm:x"]\n{text}\n')
    named = text.splitlines()[-1].partition(" ")[0]
    with pytest.raises(SettingsError, match=f"servers.npm:x.{named} in toolmill.toml: .*{told}"):
        load_settings()


def test_what_one_block_grants_a_server_is_its_policy(file):
    file.write_text(
        '[servers."npm:x"]\nnetwork = "full"\nfolders = ["/srv/notes", "/srv/work:rw"]\n'
        '[servers."npm:z"]\nhosts = ["api.example.com"]\n'
    )
    policy = make_deploy_policy(load_settings())
    grant = policy.grant_of("npm:x")
    visible = [(folder.inside, folder.writable) for folder in grant.folders]
    assert visible == [("/home/user/data", False), ("/home/user/work", True)]
    assert (grant.network, grant.personal, policy.sandbox_of("npm:x").network) == (
        *("full", True),
        "full",
    )
    assert not policy.grant_of("npm:y").folders
    assert policy.grant_of("npm:z").hosts == ("api.example.com",)
    var = file.parent / "var"
    assert {*policy.own} == {var, var / "state", file}


def test_another_shape_than_the_shipped_adapters_names_the_way_out(monkeypatch):
    monkeypatch.setenv("TOOLMILL_TRAINING__RETRIEVER__RANK", "8")
    with pytest.raises(SettingsError, match=r"retriever.rank is 8, and the shipped .* has 16; .*"):
        load_settings()
    monkeypatch.setenv("TOOLMILL_EMBEDDER__MODEL", "minilm")
    assert make_trainer(load_settings()).retriever.rank == 8


def test_the_documentation_names_every_block_of_settings():
    text = (ROOT / "docs" / "configuration.md").read_text()
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        block = isinstance(kind, type) and hasattr(kind, "__pydantic_fields__")
        variable = list_known_names()[name]
        block = block or name == "servers"
        assert (f"[{name}" if block else variable) in text, name


def test_policies_carry_what_was_set(monkeypatch):
    values = {
        "SANDBOX__PROCESSES": "64", "SANDBOX__WALL_S": "7",
        "SANDBOX__FETCH_HOSTS": '["files.example:8443"]',
        "MARKETPLACES__MCPSO__MAX_BODY_MB": "0.5", "ROLES__JUDGE__ATTEMPTS": "2",
        "TRAINING__SPLIT__SEEN_TOOLS": "0.2", "TRAINING__CALLER__RANK": "8",
        "TRAINING__CALLER__PROFILE": "mcp-flow",
        "TRAINING__EVALUATION__ITEMS": "4", "TRAINING__RELEASES__KEEP": "2",
        "TRAINING__ABLATIONS__ROLES": '["caller"]', "TRAINING__DRIFT__MIN_SHARE": "0.5",
        "TRAINING__RETRIEVER__LEARNING_RATE": "0.0002", "TRAINING__RETRIEVER__EPOCHS": "2",
        "TRAINING__RETRIEVER__TOOLS": "12",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(f"TOOLMILL_{name}", value)
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    settings = load_settings()
    sandbox = make_deploy_policy(settings).sandbox
    assert (sandbox.processes, sandbox.wall_s, sandbox.allow_loopback) == (64, 7.0, True)
    assert sandbox.fetch_hosts == ("files.example:8443",)
    assert make_crawl_policy(settings, "mcpso").max_body_bytes == 512 * 1024
    judge = {role.name: role for role in make_writer(settings).roles}["judge"]
    assert (judge.attempts, judge.temperature) == (2, 0.0)
    assert judge.api_key
    assert judge.api_key.get_secret_value() == "very-secret"
    trainer = make_trainer(settings)
    chosen = trainer.retriever
    assert (chosen.learning_rate, chosen.epochs, chosen.tools) == (2e-4, 2, 12)
    assert "hold_tokens" not in trainer.list_recipes()["retriever"]
    assert trainer.split == SetPolicy(seen_tools=0.2)
    assert (trainer.caller.rank, trainer.caller_test.per_split, trainer.releases.keep) == (8, 4, 2)
    ablations = choose_ablation_settings(trainer)
    assert (ablations.roles, ablations.caller) == (("caller",), trainer.caller)
    assert ablations.retriever.learning_rate == 2e-4
    assert trainer.drift.min_share == 0.5


@cases("name", "home", "state", "chromium")
def test_an_empty_path_is_not_the_working_directory(file, monkeypatch, name):
    file.write_text(f'{name} = ""')
    with pytest.raises(SettingsError, match=rf"TOOLMILL_{name.upper()}.*expected a path"):
        load_settings()
    file.unlink()
    monkeypatch.setenv(f"TOOLMILL_{name.upper()}", "")
    assert load_settings() == Settings()  # type: ignore[call-arg]


OWN = """# how I run them
home = "data"  # on the large disk

[servers."npm:notes"]  # my notes
network = "full"
confirmed = ["a"]

[sandbox]
twice = false
"""


def test_only_what_is_named_changes_and_comments_stay(file):
    file.write_text(OWN)
    file.chmod(0o600)
    assert write_server_settings("npm:notes", {"confirmed": ["b"]}) == file
    assert file.read_text() == OWN.replace('["a"]', '["b"]')
    assert file.stat().st_mode & 0o777 == 0o600
    write_server_settings("private:mcp.json#notes", {"confirmed": ["c"]})
    text = file.read_text()
    assert all(line in text for line in ("# how I run them", "# on the large disk", "# my notes"))
    confirmed = {name: server.confirmed for name, server in load_settings().servers.items()}
    assert confirmed == {"npm:notes": ("b",), "private:mcp.json#notes": ("c",)}
    assert load_settings().sandbox.twice is False


def test_a_link_to_the_file_stays_one(file):
    (file.parent / "own.toml").write_text(OWN)
    os.symlink("own.toml", file)
    write_server_settings("npm:notes", {"confirmed": ["b"]})
    assert file.is_symlink()
    assert '["b"]' in (file.parent / "own.toml").read_text()


@cases("data", b"home = [", b"\xff\xfe", b"servers = 3")
def test_what_cannot_be_changed_is_named_and_left_alone(file, data):
    file.write_bytes(data)
    with pytest.raises(SettingsError, match="not TOML") as caught:
        write_server_settings("npm:notes", {"network": "full"})
    assert str(file) in str(caught.value)
    assert file.read_bytes() == data
    assert os.listdir(file.parent) == [file.name]


@cases(
    "text",
    'servers = { "npm:notes" = { stateless = true }, "npm:y" = { network = "full" } }\n',
    'servers."npm:notes".stateless = true\nhome = "var"\n',
    '[servers]\n"npm:y" = { network = "full" }\n[demo]\nday = 2\n',
    '[servers."npm:y"]\nnetwork = "full"\n[demo]\nday = 2\n[servers."npm:notes"]\n',
    '[servers."npm:notes".env]\nKEY = "env:MY_KEY"\n',
    "# nothing but this",
    "home = 'var'\r\n[demo]\r\nday = 2\r\n",
)
def test_whatever_form_a_file_has_one_servers_settings_change_alone(file, text):
    file.write_bytes(text.encode())
    before = tomllib.loads(text)
    write_server_settings("npm:notes", {"folders": ["/srv/notes"]})
    after = tomllib.loads(file.read_bytes().decode())
    known = before.get("servers", {}).pop("npm:notes", {})
    assert after["servers"].pop("npm:notes") == {**known, "folders": ["/srv/notes"]}
    assert after == {**before, "servers": before.get("servers", {})}
    assert all(line in file.read_text() for line in text.splitlines() if line.startswith("#"))


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file(file):
    """Killed as its data is written, before it has its name."""
    file.write_text(OWN)
    source = (
        "import os, signal\nos.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from orchestration.settings.server_changes import write_server_settings\n"
        "write_server_settings('npm:notes', {'stateless': True})\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", source], timeout=60, check=False, env=env)
    assert (killed.returncode, file.read_text()) == (-9, OWN)
    write_server_settings("npm:notes", {"stateless": True})  # what held the folder is gone
    assert load_settings().servers["npm:notes"].stateless
