"""What is compared in a lane: our engine, and the peers that have the same weights at the same
bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.inference.device import DTYPES, open_device
from engine.inference.loading import LoadedModel, find_model, load_model
from engine.inference.options import EngineOptions
from tests.benchmarks.llama_cpp_peer import LlamaCppPeer, llama_cpp_version, quantized_file
from tests.benchmarks.ours import OurEngine
from tests.benchmarks.peer import TransformersPeer
from tests.benchmarks.served import ServedEngine
from tests.benchmarks.workload import FirstToken, Prompt, Timing, Workload

SAME_BITS = {"bfloat16": "BF16", "int8-g32-rtn": "Q8_0", "int4-g32-rtn": "Q4_0", "file": "Q4_1"}
"""The format of llama.cpp with as many bits a weight as a lane of ours, scales aside."""

OURS, TRANSFORMERS, LLAMA_CPP = "First Token", "transformers", "llama.cpp"


class Engine(Protocol):
    """Whatever runs workloads and prompts. ``weight_bytes``: of all its weights; of llama.cpp,
    which maps it, the file's."""

    @property
    def weight_bytes(self) -> int: ...

    def run(self, workload: Workload) -> Timing: ...

    def first_token(self, prompt: Prompt) -> FirstToken: ...


class Ours:
    """Our engine: steps as the scheduling loop runs them, prompts as they are served."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        executor = model.lanes[0].executor
        self.weight_bytes = executor.weight_bytes
        self._steps = OurEngine(executor, model.config.vocab_size, model.config.max_context)
        self._served = ServedEngine(model)

    def run(self, workload: Workload) -> Timing:
        return self._steps.run(workload)

    def first_token(self, prompt: Prompt) -> FirstToken:
        return self._served.first_token(prompt)

    @property
    def stage_seconds(self) -> dict[str, float]:
        """Where the decode steps that were timed last went, stage by stage."""
        return self._steps.stage_seconds


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of a model on a device, by the names that ``EngineOptions`` takes."""

    model: str
    device: str
    name: str

    @property
    def kinds(self) -> Sequence[str]:
        """Which engines have this lane here."""
        kinds = [OURS]
        if self.name in DTYPES:
            kinds.append(TRANSFORMERS)
        has_file = find_model(self.model).path is not None
        on_cpu = open_device(self.device).kind == "cpu"
        if self.name in SAME_BITS and llama_cpp_version() and has_file and on_cpu:
            kinds.append(LLAMA_CPP)
        return kinds

    def name_of(self, kind: str) -> str:
        """What a kind of engine is called in the results."""
        if kind == TRANSFORMERS:
            return TransformersPeer.name
        return f"{LLAMA_CPP} {SAME_BITS[self.name]}" if kind == LLAMA_CPP else kind

    def open(self, kind: str) -> Engine:
        """Load one of ``kinds``."""
        if kind == OURS:
            return self.open_ours()
        if kind == TRANSFORMERS:
            checkpoint = find_model(self.model).open()
            device = open_device(self.device).torch_device
            return TransformersPeer(checkpoint, DTYPES[self.name], device)
        source, file_type = find_model(self.model).path, SAME_BITS[self.name]
        if source is None:
            raise ValueError("llama.cpp needs a file")
        file = source if self.name == "file" else quantized_file(source, file_type)
        return LlamaCppPeer(file, open_device(self.device).threads)

    def open_ours(self) -> Ours:
        """Load our engine with this lane alone."""
        options = EngineOptions(
            model=self.model, device=self.device, dtypes=self.name, calibrate="never"
        )
        return Ours(load_model(options))
