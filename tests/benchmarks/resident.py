"""``python -m tests.benchmarks.resident``: what one engine with one lane takes of the memory.

In a process of its own, which runs the tiny model first, so that the libraries' code is there,
looks at its resident set, loads the lane, runs a short prompt and a few steps, so that everything
that is made on first use is there, and looks again. The growth holds weights in all the forms that
are kept, the KV cache as far as it was written to, and whatever loading left behind.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import psutil
import torch

from tests.benchmarks.engines import LLAMA_CPP, OURS, TRANSFORMERS, Lane
from tests.benchmarks.llama_cpp_peer import load_library
from tests.benchmarks.workload import Workload

_SHORT = Workload(batch=1, prompt_tokens=32, new_tokens=8)
_PATIENCE_S = 900


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes. ``rss``: pages in memory, those that others share included. ``pss``: the same, but
    shared pages by this process's part; None where the system does not tell. ``device``: what
    torch has allocated on a GPU, None without one."""

    rss: int
    pss: int | None
    device: int | None

    def since(self, before: Footprint) -> Footprint:
        """What has been added."""
        return Footprint(
            self.rss - before.rss,
            None if self.pss is None or before.pss is None else self.pss - before.pss,
            None if self.device is None or before.device is None else self.device - before.device,
        )


def footprint() -> Footprint:
    """Of this process, now."""
    memory = psutil.Process().memory_full_info()
    device = torch.cuda.memory_allocated() if torch.cuda.is_available() else None
    return Footprint(memory.rss, getattr(memory, "pss", None), device)


def growth(lane: Lane, kind: str) -> Footprint:
    """What loading a lane adds to a fresh process.

    Raises:
        RuntimeError: the process failed; says what it said last.
    """
    command = [sys.executable, "-m", "tests.benchmarks.resident", lane.model, lane.device]
    done = subprocess.run(
        [*command, lane.name, kind],
        check=False,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise RuntimeError(f"the memory of {kind} was not measured: {done.stderr[-500:]}")
    return Footprint(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.resident")
    for name in ("model", "device", "lane"):
        parser.add_argument(name)
    parser.add_argument("kind", choices=(OURS, TRANSFORMERS, LLAMA_CPP))
    options = parser.parse_args(arguments)
    lane = Lane(options.model, options.device, options.lane)
    _load_code(lane, options.kind)
    gc.collect()
    before = footprint()
    engine = lane.open(options.kind)
    engine.run(_SHORT)
    gc.collect()
    print(json.dumps(asdict(footprint().since(before))))


def _load_code(lane: Lane, kind: str) -> None:
    """Have everything imported that a lane of this kind uses."""
    if kind == LLAMA_CPP:
        load_library()
        return
    # The tiny model has no blocks of its own to use as they are.
    name = "int4-g32-rtn" if lane.name == "file" else lane.name
    Lane("tiny", lane.device, name).open(kind).run(_SHORT)


if __name__ == "__main__":
    main()
