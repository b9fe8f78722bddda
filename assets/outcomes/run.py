"""Carrying out: due calls made server by server in their worlds, each effect once."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from assets.outcomes.environment import ServerInWorld, digest_task, digest_world, open_server
from assets.outcomes.execution import EXECUTION_VERSION, CallExecution, WatchedCall, watch_call
from assets.outcomes.outcome import REFUSED, TIMEOUT
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.proof import (
    CallProof,
    Facts,
    find_task,
    judge_call,
    prove_observed,
    prove_task,
)
from assets.outcomes.select import LaunchableServer, WantedCall
from assets.outcomes.table import UNPROVED
from assets.outcomes.worlds.spec import WorldSpec
from assets.outcomes.worlds.tree import WorldFailed
from assets.servers.deploy.policy import DeployPolicy, digest_conditions
from assets.synthesis.contract_reading import read_purpose
from warehouse.item_failure import describe_failure
from warehouse.ledger.attempts import EffectOutcome as Receipt
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Progress
from warehouse.storage.digest import digest, sha256

_READS = ("read", "search", "compute")  # families of verbs whose tools keep nothing in memory


@dataclass(frozen=True)
class ExecutionJob:
    """again: the last result was one in passing. digests: of worlds, shared by a plan's jobs."""

    id: str
    wanted: WantedCall
    server: LaunchableServer
    world: WorldSpec
    seed: int
    again: bool = False
    digests: dict[tuple[str, int, str | None], str] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def world_digest(self) -> str:
        """Of all that decides where it runs, and of a task what it is checked by."""
        cache, place = self.digests, (self.world.name, self.seed)
        if (*place, None) not in cache:
            cache[*place, None] = digest_world(self.world, self.seed)
        if self.wanted.task is None:
            return cache[*place, None]
        task = self.wanted.task.task
        if (*place, task) not in cache:
            cache[*place, task] = digest_task(self.world, task, cache[*place, None])
        return cache[*place, task]


@dataclass(frozen=True)
class JobResult:
    """What is kept of a call and where, or why it was not made; proof: None if not tried."""

    execution: CallExecution | None = None
    proof: CallProof | None = None
    blob: str | None = None
    problem: str | None = None


@dataclass
class ExecutionRun:
    """One run of a marketplace. jobs that the limits left for the next one are in `left`."""

    policy: DeployPolicy
    settings: ExecutionPolicy
    ledger: Ledger
    marketplace: str
    run_date: str
    concurrency: int
    progress: Progress
    done: dict[str, JobResult] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    begun: int = 0
    until: float = 0.0

    async def carry_out(self, jobs: Sequence[ExecutionJob]) -> None:
        """Makes the calls, several servers at once; raises only what concerns the whole run."""
        self.until = time.monotonic() + self.settings.seconds
        by_server: dict[tuple[str, str, int], list[ExecutionJob]] = defaultdict(list)
        for job in sorted(jobs, key=lambda job: job.wanted.task is None):
            by_server[job.server.server_id, job.world.name, job.seed].append(job)
        places = asyncio.Semaphore(max(1, self.concurrency))

        async def run_one(group: list[ExecutionJob]) -> None:
            async with places:
                await self._run_server(group)
            self.progress.update("executions", len(self.done), len(jobs), left=len(self.left))

        await asyncio.gather(
            *(run_one(sorted(group, key=_rank_job)) for group in by_server.values())
        )

    async def _run_server(self, jobs: list[ExecutionJob]) -> None:
        """The calls of one server, those that the ledger has not."""
        due = [job for job in jobs if not self._read_known(job)]
        if not due or self._is_over(due):
            return
        server, world, seed = due[0].server, due[0].world, due[0].seed
        facts = (server.server_id, server.recipe, world, seed, self.policy)
        folder = f"{self.marketplace}-{digest([server.server_id, world.name, seed])[:16]}"
        try:
            async with open_server(*facts, folder) as place:
                for job in due:
                    if not self._is_over([job]):
                        await self._run_job(job, place)
        except Exception as error:
            self._note_problem(error, due)

    def _is_over(self, jobs: Sequence[ExecutionJob]) -> bool:
        over = self.begun >= self.settings.calls or time.monotonic() > self.until
        if over:
            self.left += [job.id for job in jobs]
        return over

    def _note_problem(self, error: Exception, jobs: Sequence[ExecutionJob]) -> None:
        """Raises what concerns the run: a full disk, the ledger's own errors."""
        problem = str(error) if isinstance(error, WorldFailed) else describe_failure(error)
        for job in jobs:
            if job.id not in self.left:
                self.done.setdefault(job.id, JobResult(problem=problem))

    def _read_known(self, job: ExecutionJob) -> bool:
        """Whether the ledger has the result already, whoever bought it: no server is started."""
        data = self.ledger.seen(self._key(job))
        if data is not None:
            self.done[job.id] = read_receipt(data)
        return data is not None

    async def _run_job(self, job: ExecutionJob, place: ServerInWorld) -> None:
        self.begun += 1
        try:
            data = await self.ledger.once_async(
                "execute",
                self._key(job),
                lambda: self._make(job, place),
                partition=self.marketplace,
            )
            self.done[job.id] = read_receipt(data)
        except Exception as error:
            self._note_problem(error, [job])

    async def _make(self, job: ExecutionJob, place: ServerInWorld) -> Receipt:
        before = await place.read_first()
        # Whether a task is carried out is told by its check, not by a second answer.
        watched = await self._watch(job, place, before=before, repeat=job.wanted.task is None)
        done = watched.execution
        await self._settle(job, done, place)
        proof = None
        if self.settings.prove and not job.server.moving and job.wanted.twin_of is None:
            proof = await self._prove(job, watched, place)
        receipt = {"execution": done.dump(), "proof": proof and vars(proof)}
        return Receipt(json.dumps(receipt, sort_keys=True).encode())

    async def _watch(
        self,
        job: ExecutionJob,
        place: ServerInWorld,
        *,
        before: Facts | None = None,
        repeat: bool = False,
    ) -> WatchedCall:
        return await watch_call(
            place.caller,
            job.wanted.call,
            place.world,
            before=before,
            timeout_s=self.settings.timeout_s,
            owner=place.owner,
            repeat=repeat,
        )

    async def _settle(self, job: ExecutionJob, done: CallExecution, place: ServerInWorld) -> None:
        """The world as it was, and no memory of the call where the server may have kept one."""
        unanswered = done.outcome == TIMEOUT  # it may still be at work
        if done.changes_state:
            await place.put_back(fresh=unanswered)
        # What a world file says of its server saves a launch, of 1 to 7 s.
        elif unanswered or (
            place.restart
            and done.status == "ok"
            and not job.wanted.call.only_reads
            and read_purpose(job.wanted.call.contract).family not in _READS
        ):
            await place.put_back(fresh=True)

    async def _prove(
        self, job: ExecutionJob, watched: WatchedCall, place: ServerInWorld
    ) -> CallProof | None:
        if watched.execution.outcome == REFUSED:
            return None
        wanted = job.wanted
        if wanted.task is None and not wanted.observed:
            return judge_call(watched.execution)

        async def run_perturbed(arguments: Facts) -> WatchedCall:
            other = replace(wanted.call, arguments=arguments)
            other_job = replace(job, wanted=replace(wanted, call=other))
            result = await self._watch(other_job, place)
            await self._settle(other_job, result.execution, place)
            return result

        first = place.world.read_first_facts()
        if wanted.task is None:
            return await prove_observed(wanted.call, first, watched, run_perturbed)
        task = find_task(place.world, wanted.task)
        if task is None:
            return CallProof(UNPROVED, f"world {job.world.name!r} holds its task no more")
        return await prove_task(wanted.call, task, first, watched, run_perturbed)

    def _key(self, job: ExecutionJob) -> str:
        """Names the effect by all that can change it; on a moving world by the run's date too."""
        call, server = job.wanted.call, job.server
        return digest(
            {
                "effect": "execute",
                "version": EXECUTION_VERSION,
                "server": server.server_id,
                "recipe": server.recipe_digest,
                "conditions": digest_conditions(server.server_id, self.policy),
                "contract": call.contract_digest,
                "arguments": dict(call.arguments),
                "world": job.world_digest,
                "proves": [self.settings.prove, job.wanted.observed],
                "run_date": self.run_date if server.moving or job.again else None,
            }
        )


def _rank_job(job: ExecutionJob) -> tuple[bool, str, str]:
    """Tools that only read come first: what others leave in a server's memory changes nothing."""
    call = job.wanted.call
    return not call.only_reads, call.tool, job.id


def read_receipt(data: bytes) -> JobResult:
    """What is kept of a call."""
    stored = json.loads(data)
    proof = CallProof(**stored["proof"]) if stored["proof"] else None
    execution = CallExecution.load(stored["execution"])
    return JobResult(execution, proof, sha256(data))
