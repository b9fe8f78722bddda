"""A webhook is told of failed runs and of nights without one, and of no secret; nobody else is."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg
import pytest

from orchestration import alerts
from orchestration.settings.load import SettingsError, load_settings
from tests.support.cases import cases
from tests.support.http_server import QuietHandler, serve_http

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3


@dataclass
class Webhook:
    """Takes messages; answers with the statuses it is given, then with 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    taken: list[dict] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    made = Webhook()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            made.paths.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"]))
            status = made.statuses.pop(0) if made.statuses else 200
            if status == 200:
                made.taken.append(json.loads(body))
            self.send_response(status)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

    monkeypatch.setattr(alerts, "_PAUSE_S", 0.0)
    with serve_http(Handler) as base:
        made.url = f"{base}/hook/T0K3N"
        monkeypatch.setenv("TOOLMILL_ALERTS__WEBHOOK", made.url)
        yield made


@dg.op
def fails() -> None:
    raise ValueError(f"the page <!here> said api_key={KEY} & more")


@dg.job
def breaks() -> None:
    fails()


def fail_run(instance: dg.DagsterInstance) -> dg.RunFailureSensorContext:
    result = breaks.execute_in_process(instance=instance, raise_on_error=False)
    return dg.build_run_status_sensor_context(
        sensor_name="alert_on_failure",
        dagster_instance=instance,
        dagster_run=result.dagster_run,
        dagster_event=result.get_run_failure_event(),
    ).for_run_failure()


def test_a_failed_run_is_told_of_without_secrets_or_markup(hook, instance):
    alerts.alert_on_failure(fail_run(instance))
    [message] = hook.taken
    assert list(message) == ["text"]
    assert message["text"].startswith("toolmill: breaks failed (")
    assert "the page &lt;!here&gt; said api_key=" in message["text"]
    assert KEY not in message["text"]
    assert "<" not in message["text"]


def test_without_a_webhook_nobody_is_told(instance):
    skipped = alerts.alert_on_failure(fail_run(instance))
    assert isinstance(skipped, dg.SkipReason)
    assert "no [alerts] webhook" in (skipped.skip_message or "")


def test_a_message_is_bounded_and_one_line():
    run = dg.DagsterRun(job_name="nightly", tags={"dagster/partition": "registry"})
    for said in ("x\n", "<", "&<a "):
        text = alerts.make_failure_message(run, said * 9000)["text"]
        assert text.startswith("toolmill: nightly registry failed")
        assert 590 < len(text) <= 600
        assert "\n" not in text
        assert text.count("&") == text.count(";")  # no mark is cut in two


@cases(
    "statuses, asked, taken",
    ([503, 429], 3, 1),
    ([500, 500, 500, 500], 3, 0),
    ([404], 1, 0),
    ([302], 1, 0),
)
def test_it_is_tried_again_at_most_twice_and_no_redirect_is_followed(hook, statuses, asked, taken):
    hook.statuses = list(statuses)
    try:
        alerts.send_message(hook.url, {"text": "x"}, pause_s=0)
        raised = ""
    except alerts.AlertUnsent as error:
        raised = str(error)
    assert (len(hook.paths), len(hook.taken)) == (asked, taken)
    assert set(hook.paths) == {"/hook/T0K3N"}
    assert bool(raised) == (taken == 0)
    assert "T0K3N" not in raised


def test_silence_is_told_of_once(hook, instance, monkeypatch):
    def tick(cursor: str | None) -> str | None:
        result = alerts.alert_on_silence(dg.build_sensor_context(instance, cursor=cursor))
        return result.cursor if isinstance(result, dg.SensorResult) else cursor

    cursor = tick(None)
    assert "the last one: never" in hook.taken[0]["text"]
    assert tick(cursor) == cursor
    assert len(hook.taken) == 1

    @dg.job(name="nightly")
    def nightly() -> None:
        return None

    nightly.execute_in_process(instance=instance)
    cursor = tick(cursor)
    assert (cursor, len(hook.taken)) == ("", 1)
    now = time.time()
    monkeypatch.setattr(alerts.time, "time", lambda: now + 30 * 3600)
    cursor = tick(cursor)
    assert "for 26 hours; the last one: 20" in hook.taken[1]["text"]
    assert tick(cursor) == cursor
    assert len(hook.taken) == 2


@cases(
    "ahead_h, told",
    (1, 0),
    (-25, 0),
    (-27, 1),
    (24 * 365, 1),
    ids=["the clock went back an hour", "in time", "late", "the clock was a year ahead"],
)
def test_a_clock_set_back_neither_alarms_nor_hides(hook, instance, monkeypatch, ahead_h, told):
    last = time.time() + ahead_h * 3600
    monkeypatch.setattr(alerts, "find_last_nightly", lambda _: last)
    alerts.alert_on_silence(dg.build_sensor_context(instance))
    assert len(hook.taken) == told


@cases("url", "http://hooks.example.com/x", "ftp://a/b", "hooks.example.com")
def test_a_webhook_is_https_or_on_this_host(url, monkeypatch):
    monkeypatch.setenv("TOOLMILL_ALERTS__WEBHOOK", url)
    with pytest.raises(SettingsError, match="expected an https URL") as raised:
        load_settings()
    assert url not in str(raised.value)
