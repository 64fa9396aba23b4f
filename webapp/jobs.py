"""Long simulations as jobs: started by one request, looked at and cancelled by others.

Few run at a time, each in a process of its own, so that neither streams nor short simulations wait
for them. Few are kept: a job that has ended is forgotten after a while, or when its place is
needed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import structlog

from engine.errors import EngineError, InvalidRequest, QueueFull, StepFailed
from webapp.errors import engine_problem
from webapp.settings import Settings
from webapp.simulations import rebuild_error

log = structlog.get_logger("webapp.jobs")

MAX_LINE_BYTES = 4 * 2**20
"""Of one line of a job's process: the answer is the longest, some tens of kB."""

Document = dict[str, object]
State = Literal["waiting", "running", "done", "failed"]


@dataclass(slots=True, eq=False)
class Job:
    """One run. ``answered`` of ``requests`` requests are, after ``simulated_s`` seconds."""

    id: str
    requests: int
    question: bytes
    state: State = "waiting"
    answered: int = 0
    simulated_s: float = 0.0
    result: Document | None = None
    problem: Document | None = None
    ended: float | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def to_document(self) -> Document:
        """The job as the API shows it."""
        return {
            "id": self.id,
            "state": self.state,
            "progress": {
                "answered": self.answered,
                "requests": self.requests,
                "simulated_s": self.simulated_s,
            },
            "result": self.result,
            "problem": self.problem,
        }


class Jobs:
    """At most ``job_slots`` run and ``jobs_kept`` are known; more are refused."""

    def __init__(self, settings: Settings) -> None:
        self._slots = asyncio.Semaphore(settings.job_slots)
        self._most = settings.jobs_kept
        self._keep_s = settings.job_keep_s
        self._timeout_s = settings.job_timeout_s
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # those of cancelled jobs too, to their end

    def start(self, question: bytes, requests: int) -> Job:
        """Take a question of ``ServeRequest``'s form in; it runs when a slot is free.

        Raises:
            QueueFull: as many jobs wait or run as are kept.
        """
        self._forget()
        if len(self._jobs) >= self._most:
            ended = [job for job in self._jobs.values() if job.ended is not None]
            if not ended:
                raise QueueFull("too many jobs are waiting; cancel one, or try again later")
            del self._jobs[min(ended, key=lambda job: job.ended or 0.0).id]
        job = Job(secrets.token_urlsafe(12), requests, question)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job))
        self._tasks.add(job.task)
        job.task.add_done_callback(self._tasks.discard)
        return job

    def get(self, job_id: str) -> Job | None:
        """The job of that id, if it is still known."""
        self._forget()
        return self._jobs.get(job_id)

    def cancel(self, job_id: str) -> bool:
        """End a job and forget it; False if there is none of that id (any more)."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return False
        if job.task is not None:
            job.task.cancel()
        return True

    async def close(self) -> None:
        """End all jobs and wait until their processes are gone."""
        self._jobs.clear()
        tasks = list(self._tasks)
        for task in tasks:
            if not task.cancelling():  # a second time would keep it from waiting for its process
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self) -> None:
        oldest = time.monotonic() - self._keep_s
        gone = [job.id for job in self._jobs.values() if job.ended and job.ended < oldest]
        for job_id in gone:
            del self._jobs[job_id]

    async def _run(self, job: Job) -> None:
        try:
            async with self._slots:
                job.state = "running"
                async with asyncio.timeout(self._timeout_s):
                    job.result = await _in_process(job)
            job.state = "done"
        except TimeoutError:
            error = InvalidRequest(
                f"the run takes more than {self._timeout_s:g} s; choose fewer requests",
                field="workload.requests",
            )
            self._fail(job, error)
        except EngineError as error:
            self._fail(job, error)
        except Exception:
            log.exception("job_failed")
            self._fail(job, StepFailed("the simulation failed; the failure was logged"))
        finally:
            job.ended = time.monotonic()
            job.question = b""

    def _fail(self, job: Job, error: EngineError) -> None:
        job.state = "failed"
        job.problem = json.loads(bytes(engine_problem(error).response().body))


async def _in_process(job: Job) -> Document:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "webapp.job_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
    )
    try:
        return await _converse(process, job)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _converse(process: asyncio.subprocess.Process, job: Job) -> Document:
    """Ask the process, hear its progress, and return its answer."""
    if process.stdin is None or process.stdout is None:
        raise AssertionError("a job's process was started without pipes")
    process.stdin.write(job.question)
    process.stdin.close()
    async for line in process.stdout:
        told = cast("dict[str, Any]", json.loads(line))
        if "document" in told:
            job.answered = job.requests
            return told["document"]
        if "error" in told:
            raise rebuild_error(told["error"])
        job.answered, job.simulated_s = told["answered"], told["simulated_s"]
    raise StepFailed("the simulation failed; the failure was logged")
