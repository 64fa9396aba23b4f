"""Time to first token as a person has it: through the engine that the worker process runs."""

from __future__ import annotations

import time

from engine.inference.engine import Engine
from engine.inference.loading import LoadedModel
from engine.inference.messages import Failed, Generate, Message, Token
from engine.scheduling.scheduler import SchedulerLimits
from tests.benchmarks.workload import FirstToken, Prompt


class ServedEngine:
    """The engine as one object, with the first lane of a loaded model."""

    def __init__(self, model: LoadedModel) -> None:
        self._lane = model.lanes[0].settings
        self._first: list[FirstToken] = []
        self._began = 0.0
        limits = SchedulerLimits(max_step_tokens=1_024, max_context=model.config.max_context)
        self._engine = Engine(model, limits, self._hear)

    def first_token(self, prompt: Prompt) -> FirstToken:
        """From handing over the text to the message of its first token: checked, tokenized,
        queued, prefilled, sampled and turned into text.

        Raises:
            RuntimeError: the engine refused the prompt or failed.
        """
        self._first.clear()
        request = Generate(
            "first-token",
            prompt=prompt.text,
            max_tokens=1,
            ignore_eos=True,
            weights=self._lane.weights.name,
            kv_cache=self._lane.kv.name,
        )
        self._began = time.perf_counter()
        self._engine.submit(self._engine.prepare(request, self._began))
        while self._engine.has_work:
            self._engine.step()
        (first,) = self._first
        return first

    def _hear(self, message: Message) -> None:
        if isinstance(message, Token):
            self._first.append(FirstToken(time.perf_counter() - self._began, message.id))
        elif isinstance(message, Failed):
            raise RuntimeError(message.message)
