"""Settings: one file, one environment, no secret printed, no typo accepted."""

import json
from pathlib import Path

import pytest

from assets.marketplaces.installed import installed
from orchestration.resources import crawl_policy, enabled
from orchestration.settings.model import SettingsError, known_names, load_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_need_nothing_and_call_no_model() -> None:
    settings = load_settings()
    assert settings.source == "demo"
    assert {settings.roles.generator.model, settings.roles.judge.model} == {"offline"}
    assert settings.state_path() == settings.home_path() / "state"


def test_the_environment_overrides_the_file(elsewhere: Path, monkeypatch) -> None:
    (elsewhere / "toolmill.toml").write_text(
        'budget_usd = 1.5\n[roles.judge]\nmodel = "from-file"\n[synthesis]\npairs_per_tool = 4\n'
    )
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "from-environment")
    settings = load_settings()
    assert settings.roles.judge.model == "from-environment"
    assert (settings.budget_usd, settings.synthesis.pairs_per_tool) == (1.5, 4)


def test_setting_one_name_of_a_part_keeps_its_other_defaults(elsewhere: Path, monkeypatch) -> None:
    (elsewhere / "toolmill.toml").write_text("[marketplaces.mcpso]\npage_cap = 3\n")
    monkeypatch.setenv("TOOLMILL_MARKETPLACES__GLAMA__API_KEY", "very-secret")
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "a-model")
    settings = load_settings()
    glama, mcpso = settings.marketplaces.glama, settings.marketplaces.mcpso
    assert (glama.scope, glama.keys()) == (("connectors",), {"api_key": "very-secret"})
    assert (mcpso.page_cap, mcpso.base_url) == (3, "https://mcp.so")
    assert settings.roles.judge.temperature == 0.0
    assert "very-secret" not in json.dumps(settings.public())


def test_a_package_of_the_users_own_adds_a_marketplace(elsewhere: Path, monkeypatch) -> None:
    names = (*installed(), "acme")
    for module in ("orchestration.settings.marketplaces", "orchestration.resources"):
        name = "installed" if module.endswith("marketplaces") else "MARKETPLACES"
        monkeypatch.setattr(f"{module}.{name}", (lambda: names) if name == "installed" else names)
    known_names.cache_clear()
    try:
        monkeypatch.setenv("TOOLMILL_MARKETPLACES__ACME__BASE_URL", "https://acme.example")
        monkeypatch.setenv("TOOLMILL_MARKETPLACES__ACME__PRIORITY", "1")
        monkeypatch.setenv("TOOLMILL_SOURCE", "live")
        settings = load_settings()
        assert enabled(settings)[0] == "acme"
        assert crawl_policy(settings, "acme").base_url == "https://acme.example"
    finally:
        known_names.cache_clear()


def test_a_marketplace_without_an_adapter_is_named(elsewhere: Path) -> None:
    (elsewhere / "toolmill.toml").write_text("[marketplaces.acme]\npage_cap = 3\n")
    with pytest.raises(SettingsError, match="no adapter 'acme' is installed; known: registry"):
        load_settings()


def test_the_demo_reads_every_site_that_lists_something_and_needs_no_key(monkeypatch) -> None:
    assert len(enabled(load_settings())) == 9
    monkeypatch.setenv("TOOLMILL_DEMO__SCALE", "small")
    settings = load_settings()
    assert enabled(settings) == ["registry", "mcpso"]
    policy = crawl_policy(settings, "glama")
    assert policy.keys
    assert policy.allow_loopback
    monkeypatch.setenv("TOOLMILL_SOURCE", "live")
    live = crawl_policy(load_settings(), "glama")
    assert (live.keys, live.allow_loopback, live.base_url) == (
        {},
        False,
        "https://glama.ai/api/mcp",
    )


def test_private_files_are_read_only_where_they_are_named(monkeypatch) -> None:
    assert "private" not in enabled(load_settings())
    monkeypatch.setenv("TOOLMILL_MARKETPLACES__PRIVATE__PATHS", '["mcp.json"]')
    assert "private" in enabled(load_settings())


def test_no_secret_is_printed(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret-1")
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__API_KEY", "very-secret-2")
    settings = load_settings()
    assert settings.openai_api_key
    assert settings.openai_api_key.get_secret_value() == "very-secret-1"
    assert "very-secret" not in json.dumps(settings.public())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TOOLMILL_HOEM", "TOOLMILL_HOME"),
        ("TOOLMILL_SANDBOX__MEMROY_MB", "TOOLMILL_SANDBOX__MEMORY_MB"),
        ("TOOLMILL_ROLES__GENERATER__MODEL", "TOOLMILL_ROLES__GENERATOR__MODEL"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_real_one(monkeypatch, name, near) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError, match=f"{name}: no such setting; did you mean {near}"):
        load_settings()


def test_a_misspelt_name_in_the_file_is_named(elsewhere: Path) -> None:
    (elsewhere / "toolmill.toml").write_text("[synthesis]\npairs_per_tol = 4\n")
    with pytest.raises(SettingsError, match=r"synthesis\.pairs_per_tol.*did you mean"):
        load_settings()


def test_a_wrong_value_names_the_setting_and_what_was_found(monkeypatch) -> None:
    monkeypatch.setenv("TOOLMILL_SANDBOX__MEMORY_MB", "lots")
    with pytest.raises(SettingsError, match=r"TOOLMILL_SANDBOX__MEMORY_MB.*'lots'"):
        load_settings()


def test_a_wrong_key_value_is_not_echoed(monkeypatch, elsewhere: Path) -> None:
    (elsewhere / "toolmill.toml").write_text("[roles.judge]\napi_key = [1, 2]\n")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "[1, 2]" not in str(caught.value)


def test_a_file_that_is_no_toml_is_named(elsewhere: Path) -> None:
    (elsewhere / "toolmill.toml").write_text("home = \n")
    with pytest.raises(SettingsError, match=r"toolmill\.toml: not TOML"):
        load_settings()


def test_every_setting_has_a_variable_of_its_own() -> None:
    variables = list(known_names().values())
    assert len(variables) == len(set(variables))


def test_a_servers_secret_is_named_by_its_source_and_never_written_down(elsewhere: Path) -> None:
    (elsewhere / "toolmill.toml").write_text(
        '[servers."npm:@notionhq/notion-mcp-server"]\nnetwork = "full"\n'
        'env = { NOTION_TOKEN = "env:MY_TOKEN" }\n'
    )
    server = load_settings().servers["npm:@notionhq/notion-mcp-server"]
    assert (server.network, server.env) == ("full", {"NOTION_TOKEN": "env:MY_TOKEN"})
    (elsewhere / "toolmill.toml").write_text(
        '[servers."npm:x"]\nenv = { KEY = "hunter2hunter2" }\n'
    )
    with pytest.raises(SettingsError, match="KEY: expected env:NAME or file:PATH") as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)
