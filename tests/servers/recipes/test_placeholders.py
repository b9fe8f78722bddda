"""Placeholders: the shape that a name asks for, and never a value that could be live."""

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import EnvVar, HeaderVar
from assets.servers.recipes import placeholders, recipe_plan
from assets.servers.recipes.placeholders import DATA, FORMATS, holds_secret, make_value
from assets.servers.recipes.recipe_plan import fill_arguments, fill_environment, fill_headers
from tests.support.cases import cases

SHAPED = {
    "OPENAI_API_KEY": r"sk-[A-Za-z0-9]{48}",
    "ANTHROPIC_API_KEY": r"sk-ant-api03-[\w-]{95}",
    "GEMINI_API_KEY": r"AIza[\w-]{35}",
    "YOUTUBE_API_KEY": r"AIza[\w-]{35}",
    "GITHUB_TOKEN": r"ghp_[A-Za-z0-9]{36}",
    "GITHUB_FINE_GRAINED_TOKEN": r"github_pat_\w{82}",
    "githubPersonalAccessToken": r"ghp_[A-Za-z0-9]{36}",
    "GITLAB_PERSONAL_ACCESS_TOKEN": r"glpat-[\w-]{20}",
    "NOTION_TOKEN": r"ntn_[A-Za-z0-9]{46}",
    "SLACK_BOT_TOKEN": r"xoxb-\d{10}-\d{13}-[A-Za-z0-9]{24}",
    "SLACK_APP_TOKEN": r"xapp-1-A\d+-\d+-[0-9a-f]{64}",
    "STRIPE_SECRET_KEY": r"sk_test_[A-Za-z0-9]{24}",
    "HF_TOKEN": r"hf_[A-Za-z0-9]{34}",
    "TAVILY_API_KEY": r"tvly-[A-Za-z0-9-]{32}",
    "LINEAR_API_KEY": r"lin_api_[A-Za-z0-9]{40}",
    "AIRTABLE_API_KEY": r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
    "SENDGRID_API_KEY": r"SG\.[\w-]{22}\.[\w-]{43}",
    "TWILIO_ACCOUNT_SID_SECRET": r"AC[0-9a-f]{32}",
    "TELEGRAM_BOT_TOKEN": r"\d{8,10}:AA[\w-]{33}",
    "DISCORD_TOKEN": r"[\w-]{24}\.[\w-]{6}\.[\w-]{27,}",
    "AWS_ACCESS_KEY_ID": r"AKIA[A-Z0-9]{16}",
    "AWS_SECRET_ACCESS_KEY": r"[A-Za-z0-9/+]{40}",
    "SUPABASE_SERVICE_ROLE_KEY": r"ey[\w-]+\.ey[\w-]+\.[\w-]{43}",
    "MY_JWT_TOKEN": r"ey[\w-]+\.ey[\w-]+\.[\w-]{43}",
    "WALLET_PRIVATE_KEY": r"0x[0-9a-f]{64}",
    "ENCRYPTION_KEY": r"[A-Za-z0-9+/]{43}=",
    "WALLET_MNEMONIC": r"(\w+ ){11}\w+",
    "GITHUB_APP_PRIVATE_KEY": r"(?s)-----BEGIN RSA PRIVATE KEY-----\n.*END RSA PRIVATE KEY-----\n",
}  # fmt: skip
TYPED = {
    "JIRA_URL": "https://placeholder.atlassian.net",
    "BASE_URL": "https://placeholder.example.com",
    "TOKEN_URL": "https://placeholder.example.com",
    "DATABASE_URL": "postgresql://placeholder:placeholder@localhost:5432/placeholder",
    "MONGODB_URI": "mongodb://placeholder:placeholder@localhost:27017/placeholder",
    "REDIS_URL": "redis://localhost:6379/0",
    "MDB_MCP_TELEMETRY": "disabled",
    "MONGODB_DATABASE_CONNECTION_STRING":
        "mongodb://placeholder:placeholder@localhost:27017/placeholder",
    "MYSQL_HOST": "localhost",
    "MYSQL_PORT": "3306",
    "PGPORT": "8080",
    "POSTGRES_PORT": "5432",
    "ALLOWED_DIR": DATA,
    "VAULT_PATH": DATA,
    "GOOGLE_APPLICATION_CREDENTIALS": f"{DATA}/placeholder.json",
    "CONFIG_FILE": f"{DATA}/placeholder.json",
    "EMAIL": "placeholder@example.com",
    "AZURE_TENANT_ID": "00000000-0000-4000-8000-000000000000",
    "AWS_REGION": "us-east-1",
    "TZ": "UTC",
    "LOG_LEVEL": "info",
    "READ_ONLY": "true",
    "ENABLE_CACHE": "true",
    "REQUEST_TIMEOUT": "30",
    "MAX_TOKENS": "10",
    "START_DATE": "2026-01-01",
    "MCP_TRANSPORT": "stdio",
    "whatever": "placeholder",
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_a_key_has_the_length_and_alphabet_of_its_provider(name):
    assert re.fullmatch(SHAPED[name], make_value(name))


@pytest.mark.parametrize("name", TYPED)
def test_what_is_no_secret_has_the_type_that_its_name_says(name):
    assert make_value(name) == TYPED[name]


@cases(
    "description, value",
    ("One of: read, write", "read"),
    ("Output format (default: markdown)", "markdown"),
    ("Defaults to 30", "30"),
    ("localhost", "localhost"),
    ("The URL of the instance, e.g. https://x.org", "https://placeholder.example.com"),
    ("Directory for downloads", DATA),
    ("Get your API key at the console", "placeholder0placeholder0placeholder0plac"),
)
def test_a_description_tells_what_a_name_does_not(description, value):
    assert make_value("SETTING", description) == value


def test_choices_and_formats_come_before_names_and_the_package_names_the_provider():
    assert make_value("OPENAI_API_KEY", choices=("a", "b")) == "a"
    assert make_value("OPENAI_API_KEY", None, "boolean") == "true"
    assert json.loads(make_value("OPTIONS", None, "json")) == {}
    assert make_value("API_KEY", context="tavily-mcp").startswith("tvly-")
    assert make_value("API_KEY", "Your Stripe key", context="some-mcp").startswith("sk_test_")


def test_structured_secrets_parse():
    parts = [base64.urlsafe_b64decode(f"{part}==") for part in placeholders.make_jwt().split(".")]
    assert (json.loads(parts[0])["alg"], json.loads(parts[1])["sub"]) == ("HS256", "placeholder")
    assert json.loads(placeholders.make_service_account())["type"] == "service_account"
    assert len(base64.b64decode(placeholders.encode_base64(32))) == 32
    lines = placeholders.make_pem("X").splitlines()
    assert b"placeholder" in base64.b64decode("".join(lines[1:-1]))


def says_placeholder(value: str) -> bool:
    """Spells the word, in any case or coded; or is all zeros, ones and a known prefix; or is the
    BIP 39 phrase of zero entropy; or is a plain word that opens nothing."""
    if "placeholder" in value.lower():
        return True
    for part in re.split(r"[.\s]", value):
        try:
            if b"placeholder" in base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_"):
                return True
        except ValueError:
            continue
    if value.startswith("abandon abandon"):
        return True
    long = re.findall(r"[A-Za-z0-9]{16,}", value.replace("-", ""))
    return all(sum(char in "0" for char in run) >= 0.75 * len(run) for run in long)


@pytest.mark.parametrize("place", range(len(FORMATS)))
def test_no_providers_key_could_be_live(place):
    assert says_placeholder(placeholders.write_key(FORMATS[place][1]))


WORDS = ["API", "KEY", "TOKEN", "SECRET", "OPENAI", "GITHUB", "SLACK", "URL", "PATH", "PORT", "ID"]
WORDS += ["PASSWORD", "JWT", "PRIVATE", "WALLET", "REGION", "EMAIL", "AWS", "ACCESS", "x", "ü", "é"]
NAMES = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=6).map("_".join))


@given(NAMES, st.one_of(st.none(), st.text(max_size=200)), st.text(max_size=40))
def test_the_same_words_give_the_same_value_and_never_a_live_one(name, description, context):
    value = make_value(name, description, context=context)
    assert value == make_value(name, description, context=context)
    assert isinstance(value, str)
    assert value
    if holds_secret(name):
        assert says_placeholder(value)


@given(st.text(max_size=300))
def test_a_value_stated_by_a_description_is_short_and_plain(description):
    assert re.fullmatch(r"[\x20-\x7e\n]{1,2000}", make_value("SETTING", description))


@cases(
    "name, secret",
    ("API_KEY", True), ("password", True), ("GITHUB_PAT", True), ("AUTH_TOKEN", True),
    ("TOKEN_URL", False), ("AUTH_TYPE", False), ("MAX_TOKENS", False), ("KEY_PATH", False),
    ("USE_AUTH", False), ("REGION", False),
)  # fmt: skip
def test_a_name_that_speaks_of_a_secret_may_hold_none(name, secret):
    assert holds_secret(name) is secret


@cases(
    "args, filled, made_up",
    (("--root={dir:filepath}", "--fast"), (f"--root={DATA}", "--fast"), ("arg:0",)),
    (("/Users/jane/docs",), (DATA,), ("arg:0",)),
    (("--dir=~/notes",), (f"--dir={DATA}",), ("arg:0",)),
    (("${input:vaultPath}",), (DATA,), ("arg:0",)),
    (("--api-url", "https://connection.YOUR_REGION.example.com"),
     ("--api-url", "https://connection.placeholder.example.com"), ("arg:1",)),
    (("--api-key", "<YOUR_API_KEY>"),
     ("--api-key", "placeholder0placeholder0placeholder0plac"), ("arg:1",)),
    (("--fast", "https://api.example.com"), ("--fast", "https://api.example.com"), ()),
    (("--port", "8123", "--at", "http://localhost:{port}/x"),
     ("--port", "8123", "--at", "http://localhost:8123/x"), ()),
    (("--data-dir=notes", "--log", "${data_dir}/log"),
     ("--data-dir=notes", "--log", "notes/log"), ()),
)  # fmt: skip
def test_places_in_arguments(args, filled, made_up):
    assert fill_arguments(args) == (filled, made_up)


def test_arguments_refer_to_variables_with_values():
    values = {"HOST": "db.example", "PORT": "80"}
    args = ("--url", "http://${HOST}:${env:PORT}", "$HOST", "{host}", "${OTHER}")
    filled, made_up = fill_arguments(args, values=values)
    assert filled[:4] == ("--url", "http://db.example:80", "db.example", "db.example")
    assert made_up == ("arg:4",)


@cases(
    "args, left",
    (("--api-key", "<YOUR_KEY>", "--fast"), ("--fast",)),
    (("--root={dir:filepath}", "x"), ("x",)),
    (("~/notes",), ()),
    (("a", "b"), ("a", "b")),
)
def test_without_placeholders_what_needs_one_is_left_out(args, left):
    assert fill_arguments(args, placeholders=False) == (left, ())


def test_variables_are_needed_spare_given_or_left_out():
    variables = (
        EnvVar(name="KEY", secret=True),
        EnvVar(name="HOST", required=True),
        EnvVar(name="REGION"),
        EnvVar(name="LEVEL", default="warn"),
        EnvVar(name="HOME_DIR", default="/Users/jane/x"),
        EnvVar(name="a b", required=True),
    )
    env, spare, made_up = fill_environment(variables)
    assert (dict(env).keys(), dict(env)["HOME_DIR"]) == ({"KEY", "HOST", "LEVEL", "HOME_DIR"}, DATA)
    assert dict(spare) == {"REGION": "us-east-1"}
    assert made_up == ("env:HOME_DIR", "env:HOST", "env:KEY", "env:REGION")
    assert fill_environment(variables, placeholders=False) == ((("LEVEL", "warn"),), (), ())


def test_headers_carry_a_secret_as_the_listing_says():
    headers = (
        HeaderVar(name="Authorization", required=True, secret=True),
        HeaderVar(name="X-Token", secret=True, description="Linear (sent as 'Key {api_key}')"),
        HeaderVar(name="X-App", default="zoom"),
        HeaderVar(name="X-Optional"),
        HeaderVar(name="bad name", required=True),
    )
    sent, made_up = fill_headers(headers)
    named = dict(sent)
    assert named["Authorization"].startswith("Bearer placeholder")
    assert named["X-Token"].startswith("Key lin_api_placeholder")
    assert (named["X-App"], named.keys()) == ("zoom", {"Authorization", "X-Token", "X-App"})
    assert made_up == ("header:Authorization", "header:X-Token")
    assert fill_headers(headers, placeholders=False) == ((("X-App", "zoom"),), ())


def test_a_place_in_an_address_leads_to_no_other_host_and_no_header_has_a_line_break():
    fill = recipe_plan.fill_address
    url, made_up = fill("https://{tenant}.example.com/{base_url}/mcp?key={api_key}")
    assert url.startswith("https://00000000-0000-4000-8000-000000000000.example.com/")
    assert "{" not in url
    assert "://" not in url[8:]
    assert made_up == ("url:api_key", "url:base_url", "url:tenant")
    assert recipe_plan.fill_address("https://{x}.example.com", placeholders=False) == (None, ())
    assert recipe_plan.fill_address("https://a.org/mcp", placeholders=False) == (
        "https://a.org/mcp",
        (),
    )
    headers = (
        HeaderVar(name="X", required=True, default="a\r\nEvil: 1"),
        HeaderVar(name="RSA_PRIVATE_KEY", required=True),
    )
    sent, _ = fill_headers(headers)
    assert all("\n" not in value and "\r" not in value for _, value in sent)
