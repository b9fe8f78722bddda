"""Connections to a running server: in the sandbox over its standard streams, or over HTTP."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.deploy.deploy import fetch_image, find_refusal, make_launch
from assets.servers.deploy.grants import list_granted_places
from assets.servers.deploy.launch import apply_grant, make_local_launch, open_hosts
from assets.servers.deploy.policy import DeployPolicy, digest_conditions, find_unconfirmed
from assets.servers.probe.failure_kinds import ConversationEnd, PackageError, ProbeFailure
from assets.servers.probe.remote_probe import RemoteConversation, list_secrets
from assets.servers.probe.remote_transport import (
    MAX_REQUESTS,
    MIB,
    GuardedTransport,
    RemotePolicy,
    Transport,
)
from assets.servers.probe.transcript import (
    MessageFilter,
    ProbeEvidence,
    StdioRelay,
    classify_evidence,
)
from assets.servers.recipes.install import InstalledArtifact, ensure_artifact
from assets.servers.recipes.placeholders import holds_secret
from assets.servers.recipes.recipe import LaunchRecipe, RecipeError, check_identity, load_recipe
from assets.servers.sandbox.gateway import HostLog
from assets.servers.sandbox.process import SandboxProcess, preflight, start
from assets.servers.sandbox.spec import (
    BackendCommand,
    LaunchRefused,
    SandboxLaunch,
    SandboxPolicy,
    SandboxUnavailable,
)
from assets.servers.sandbox.toolchain import find_toolchain
from assets.servers.sandbox.watchdog import SandboxWatchdog
from assets.servers.secrets import LaunchSecrets, SecretError
from warehouse.storage.digest import digest


@dataclass(frozen=True)
class LaunchPlan:
    """A server as it is to be launched. key: names the session; another one for another owner, and
    after a change of the recipe, of the settings or of a secret. made_up: values that are made up
    and no secrets."""

    recipe: LaunchRecipe
    given: LaunchSecrets = field(repr=False)
    key: str
    made_up: tuple[str, ...] = ()


def plan_launch(
    server_id: str, facts: Mapping[str, Any] | None, policy: DeployPolicy, owner: str = ""
) -> LaunchPlan:
    """Raises CallFailed where the settings refuse the server, a real secret is missing, or its user
    has not confirmed what the listing chose.

    What a running server remembers stays with its owner, unless it is known to remember nothing.
    """
    if facts is None:
        raise CallFailed("unknown_server", f"no recipe of {server_id!r}", sent=False)
    try:
        recipe = load_recipe(facts)
        check_identity(recipe)
    except RecipeError as error:
        raise CallFailed("no_recipe", "", fix=str(error), sent=False) from None
    if recipe.server_id != server_id:
        detail = f"the recipe of {server_id!r} is one of {recipe.server_id!r}"
        raise CallFailed("no_recipe", detail, fix="build the index again", sent=False)
    if refused := find_refusal(recipe, policy):
        raise CallFailed.of(refused, sent=False)
    try:
        secrets = policy.secrets.given(server_id)
        under = digest_conditions(server_id, policy)
    except SecretError as error:
        raise CallFailed("needs_secret", "", fix=str(error), sent=False) from None
    check_secrets(recipe, secrets)
    if unconfirmed := find_unconfirmed(recipe, secrets, policy):
        raise CallFailed.of(unconfirmed, sent=False)
    real = secrets.names | list_granted_places(recipe, policy.grant_of(server_id))
    made_up = sorted(set(recipe.placeholders) - real)
    facts_of_key = {"recipe": recipe.digest, "conditions": under}
    key = digest({**facts_of_key, "owner": None if server_id in policy.stateless else owner})
    return LaunchPlan(recipe, secrets, key, tuple(made_up))


def check_secrets(
    recipe: LaunchRecipe, secrets: LaunchSecrets, artifact: InstalledArtifact | None = None
) -> None:
    """Raises CallFailed, naming variable and setting, where a secret is made up, by the listing or
    by the artefact's own manifest."""
    made_up = {*recipe.placeholders}
    # A bundle fills variables from what it asks its user; else the input has a name of its own.
    inputs = [place for place in (artifact.placeholders if artifact else ()) if ":" in place]
    secret_inputs = [place for place in inputs if holds_secret(place.partition(":")[2])]
    if artifact and secret_inputs:
        variables = [f"env:{name}" for name in artifact.env if holds_secret(name)]
        made_up |= {*(variables or secret_inputs)}
    made_up -= secrets.names
    missing = sorted(place for place in made_up if _is_secret(place, recipe))
    if missing:
        detail = f"{recipe.server_id} was listed with made-up secrets ({', '.join(missing)})"
        fix = "; ".join(_describe_setting(place, recipe.server_id) for place in missing)
        detail += "; a call needs real ones"
        raise CallFailed("needs_secret", detail, fix=fix, sent=False)


def _is_secret(place: str, recipe: LaunchRecipe) -> bool:
    kind, _, name = place.partition(":")
    if kind in ("env", "header", "url", "user_config"):
        return holds_secret(name)
    if kind == "arg" and name.isdigit() and int(name) < len(recipe.args):
        at = int(name)
        option = recipe.args[at].partition("=")[0] if "=" in recipe.args[at] else ""
        before = recipe.args[at - 1] if at else ""
        return any(word.startswith("-") and holds_secret(word) for word in (option, before))
    return False


def _describe_setting(place: str, server_id: str) -> str:
    """What to write into toolmill.toml."""
    kind, _, name = place.partition(":")
    if kind == "env":
        line = f'`{name} = "env:{name}"` below `[servers."{server_id}".env]`'
        return f"set {name} in the environment and write {line} in toolmill.toml"
    if kind == "header":
        value = f'"{"Bearer " if name.lower() == "authorization" else ""}env:VARIABLE"'
        line = f'`{name} = {value}` below `[servers."{server_id}".headers]`'
        return f"keep the secret in a variable and write {line} in toolmill.toml"
    return f"{place} cannot be given by a setting: list the server with it in a private mcp.json"


@dataclass(repr=False)
class ServerConnection(ABC):
    """What a session needs of a running server. answered: the session is up, set by it."""

    plan: LaunchPlan
    read: Any = field(default=None, init=False)
    write: Any = field(default=None, init=False)
    answered: bool = field(default=False, init=False)

    @abstractmethod
    async def over(self) -> None:
        """Returns once nothing more can come from the server."""

    @property
    @abstractmethod
    def dead(self) -> bool: ...

    @property
    @abstractmethod
    def worn(self) -> bool:
        """Whether so much of its limits is spent that it should get no further call."""

    @abstractmethod
    async def why(self, failure: ProbeFailure | None) -> CallFailed:
        """Why the conversation ended. failure: how it did for the session."""

    def idle_s(self) -> float:
        """How long the server has visibly done nothing."""
        return 0.0

    def busy(self, busy: bool) -> None:
        """Whether a call is under way."""
        return

    def secrets(self) -> dict[str, str]:
        """What must be in no answer."""
        return {**self.plan.given.env, **self.plan.given.headers}

    def refused_hosts(self) -> Sequence[str]:
        """The hosts that the server asked for so far and was not granted."""
        return ()

    def waiting_hosts(self) -> Sequence[str]:
        """The granted hosts that owe the server an answer at this moment."""
        return ()

    def refused(self) -> CallFailed | None:
        """Why the last request had no answer of MCP, where the line itself knows."""
        return None


Dial = Callable[[MessageFilter], AbstractAsyncContextManager[ServerConnection]]


@asynccontextmanager
async def dial_remote(
    plan: LaunchPlan,
    policy: DeployPolicy,
    limits: CallLimits,
    kind: Transport,
    listener: MessageFilter,
) -> AsyncIterator[ServerConnection]:
    """Reaches the recipe's address over one transport, with its user's headers and account."""
    recipe, url = plan.recipe, str(plan.recipe.url)
    wall_s = limits.timeout_s + limits.launch_s
    remote = policy.remote or RemotePolicy()
    remote = replace(remote, wall_s=wall_s, message_mb=limits.message_mb)
    headers = {**dict(recipe.headers), **plan.given.headers}
    try:
        auth = policy.accounts.auth(recipe.server_id, url) if policy.accounts else None
    except SecretError as error:
        raise CallFailed("remote_auth", "", fix=str(error), sent=False) from None
    async with GuardedTransport(remote) as wire:
        attempt = RemoteConversation(kind, url, wire, listener, headers=headers, auth=auth)
        line = _RemoteConnection(plan, headers=headers, wire=wire, attempt=attempt)
        try:
            async with attempt.open(policy.conversation.start_s) as (line.read, line.write):
                yield line
        except ConversationEnd as ended:
            raise line.make_failure(ended.failure) from None


@dataclass(repr=False)
class _RemoteConnection(ServerConnection):
    """Silence on it is no idleness: a server elsewhere may be starting."""

    headers: dict[str, str] = field(kw_only=True)
    wire: GuardedTransport = field(kw_only=True)
    attempt: RemoteConversation = field(kw_only=True)

    async def over(self) -> None:
        """Ends with the scope of the attempt, which the watch cancels."""
        await anyio.sleep_forever()

    @property
    def dead(self) -> bool:
        watch = self.attempt.watch
        return watch.failure is not None or bool(watch.refusal and watch.refusal.lost_session)

    @property
    def worn(self) -> bool:
        meter = self.wire.meter
        heavy = max(meter.wire, meter.decoded) > self.wire.policy.max_mb * MIB // 2
        return heavy or self.attempt.client.requests > MAX_REQUESTS // 2

    def secrets(self) -> dict[str, str]:
        url, tokens = self.attempt.watch.url, self.attempt.client.tokens
        return {**list_secrets(url, self.headers, tokens), **super().secrets()}

    def refused(self) -> CallFailed | None:
        refusal = self.attempt.watch.refusal
        if refusal is None or not (refusal.lost_session or refusal.error is None):
            return None  # the session has been given the error
        return self.make_failure(self.attempt.rank_evidence(None, answered=True))

    async def why(self, failure: ProbeFailure | None) -> CallFailed:
        return self.make_failure(self.attempt.rank_evidence(failure, answered=self.answered))

    def make_failure(self, failure: ProbeFailure) -> CallFailed:
        refusal = self.attempt.watch.refusal
        sent = self.answered and not (refusal and refusal.lost_session)
        call_failure = CallFailed.of(failure, sent=sent)
        call_failure.may_be_sse = not self.answered and bool(refusal and refusal.may_be_sse)
        return call_failure


# Apart from other threads: an installation may take minutes, and four of them at once would keep
# every other call waiting for a thread.
_INSTALLERS = ThreadPoolExecutor(4, thread_name_prefix="install")
_RESTING_S = 1.0  # between two looks at a server that nobody asks anything
_LIMITS = (
    *("out_of_memory", "too_many_processes", "disk_full", "oversize", "protocol_error"),
    *("timeout_start", "timeout_list"),
)
_CRASHED = "the server ended during the call, and whether it did its work is not known: look before"
_CRASHED += " you call again"


@asynccontextmanager
async def dial_local(
    plan: LaunchPlan, policy: DeployPolicy, limits: CallLimits, listener: MessageFilter
) -> AsyncIterator[ServerConnection]:
    """Launches the recipe as the pipeline does; only the wall clock is that of a session. Leaving
    it ends the whole tree."""
    name, wall_s = plan.recipe.server_id, limits.life_s + limits.timeout_s
    sandbox = policy.sandbox_of(name)
    sandbox = replace(sandbox, wall_s=wall_s, message_mb=limits.message_mb)
    async with AsyncExitStack() as stack:
        prepared = (_INSTALLERS, _prepare_launch, plan, policy, sandbox)
        launch, log = await asyncio.get_running_loop().run_in_executor(*prepared), HostLog()
        # On this thread, which lives as long as the session: bubblewrap ends its child when the
        # thread that started it does, and a worker thread ends when it is idle.
        try:
            if isinstance(launch, SandboxLaunch):
                granted = (policy.grant_of(name), sandbox, find_toolchain().python)
                launch, log = stack.enter_context(open_hosts(launch, *granted))
            jailed = stack.enter_context(start(launch, sandbox))
        except SandboxUnavailable as error:
            raise _make_no_sandbox_failure(error) from None
        except LaunchRefused as error:
            raise CallFailed(error.kind, str(error), sent=False) from None
        relay = StdioRelay(jailed, sandbox, listener)
        watchdog = stack.enter_context(SandboxWatchdog(jailed, sandbox))
        async with anyio.create_task_group() as tasks:
            relay.start(tasks)
            try:
                yield _LocalConnection(
                    plan, jailed=jailed, relay=relay, watchdog=watchdog, sandbox=sandbox, hosts=log
                )
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.to_thread(jailed.kill)


def _prepare_launch(
    plan: LaunchPlan, policy: DeployPolicy, sandbox: SandboxPolicy
) -> SandboxLaunch | BackendCommand:
    """Fetches what is launched. Raises CallFailed; runs in a thread of its own."""
    recipe, secrets = plan.recipe, plan.given
    try:
        if recipe.is_image:
            return fetch_image(recipe, secrets, policy, sandbox)()
        preflight(sandbox)
        toolchain = find_toolchain()
        if recipe.ecosystem == "private":
            launch = make_local_launch(recipe, toolchain, secrets)
            return apply_grant(launch, recipe.server_id, policy)
        artifact = ensure_artifact(recipe, home=policy.home, toolchain=toolchain, policy=sandbox)
    except PackageError as error:
        raise CallFailed.of(ProbeFailure(error.kind, str(error)), sent=False) from None
    except SandboxUnavailable as error:
        raise _make_no_sandbox_failure(error) from None
    check_secrets(recipe, secrets, artifact)
    launch = make_launch(recipe, artifact, toolchain, secrets)
    return apply_grant(launch, recipe.server_id, policy)


def _make_no_sandbox_failure(error: SandboxUnavailable) -> CallFailed:
    return CallFailed("policy_denied", f"{error.what} ({error.why})", fix=str(error), sent=False)


@dataclass(repr=False)
class _LocalConnection(ServerConnection):
    jailed: SandboxProcess = field(kw_only=True)
    relay: StdioRelay = field(kw_only=True)
    watchdog: SandboxWatchdog = field(kw_only=True)
    sandbox: SandboxPolicy = field(kw_only=True)
    hosts: HostLog = field(kw_only=True)

    def __post_init__(self) -> None:
        self.read, self.write = self.relay.read, self.relay.write
        self._every_s = self.watchdog.every_s

    async def over(self) -> None:
        await self.relay.over.wait()

    def idle_s(self) -> float:
        return self.watchdog.idle_s

    def refused_hosts(self) -> Sequence[str]:
        return self.hosts.refused

    def waiting_hosts(self) -> Sequence[str]:
        return self.hosts.list_waiting()

    def busy(self, busy: bool) -> None:
        self.watchdog.every_s = self._every_s if busy else _RESTING_S

    @property
    def dead(self) -> bool:
        return self.relay.over.is_set() or self.jailed.process.poll() is not None

    @property
    def worn(self) -> bool:
        transcript = self.relay.transcript
        unasked = transcript.initiated + transcript.strays + transcript.noise
        return self.relay.total > self.sandbox.stdout_mb * MIB // 2 or unasked > 2000

    async def why(self, failure: ProbeFailure | None) -> CallFailed:
        """A limit that was passed, how it exited and what it said, then the conversation."""
        exited = await asyncio.to_thread(self.jailed.ends_within, 1.0)
        code, signal = self.jailed.exit_status() if exited else (None, None)
        breach, delivered = self.watchdog.breach, not self.relay.unsent
        evidence = ProbeEvidence(
            self.relay.transcript,
            failure or ProbeFailure("protocol_error", "it ended"),
            breach=breach,
            answered=self.answered,
            exited=exited and breach is None,
            code=code,
            signal=signal,
        )
        verdict = classify_evidence(evidence)
        assert verdict is not None  # there is always evidence to weigh
        if not self.answered:
            return CallFailed.of(verdict, sent=False)
        if breach and breach.limit == "wall":
            return CallFailed("timeout_call", f"the session lasted {breach.found}", sent=delivered)
        if exited and verdict.kind not in _LIMITS:
            detail = verdict.detail or "it ended"
            return CallFailed("crashed", detail, fix=_CRASHED, sent=delivered)
        return CallFailed.of(verdict, sent=delivered)
