"""The same engine on CUDA. Skipped, with the reason, where torch sees no GPU."""

from __future__ import annotations

import pytest
import torch

from engine.inference.device import open_device
from engine.inference.executor import TorchExecutor
from engine.inference.model.load import load_transformer
from engine.inference.sampling import SamplingParams
from engine.inference.weights.tiny import tiny_random_checkpoint
from tests.engine.inference.runs_for_tests import (
    Run,
    alone,
    logits,
    new_cache,
    plan,
    random_ids,
    sequence,
    tiny_executor,
    tiny_reference,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here"),
]


def _executor(dtype: torch.dtype, num_blocks: int = 64) -> TorchExecutor:
    device = open_device("cuda").torch_device
    return TorchExecutor(
        load_transformer(tiny_random_checkpoint(), dtype, device), num_blocks=num_blocks
    )


def test_cuda_is_chosen_by_itself_and_computes_in_bfloat16() -> None:
    device = open_device()
    assert (device.kind, device.default_dtype) == ("cuda", "bfloat16")
    assert device.name == torch.cuda.get_device_name()


def test_float32_is_float32() -> None:
    """TF32 keeps 10 bits of the mantissa: its error would be a thousand times this bound."""
    open_device("cuda")
    a = torch.randn(256, 256, device="cuda")
    b = torch.randn(256, 256, device="cuda")
    exact = a.double() @ b.double()
    assert (a @ b - exact).abs().max() < 1e-4


@pytest.mark.parametrize("table", [range(20), [40 - 2 * i for i in range(20)]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_equal_the_reference(table: range | list[int], dtype: torch.dtype) -> None:
    model = load_transformer(tiny_random_checkpoint(), dtype, torch.device("cuda"))
    ids = random_ids(300, seed=1)
    exact = tiny_reference().logits(ids)
    cache = new_cache(model)
    for start, stop in ((0, 130), (130, 290), (290, 299), (299, 300)):
        part = sequence(ids[start:stop], start=start, table=table)
        row = logits(model, cache, part)["a"].cpu()
        tolerance = 1e-3 if dtype is torch.float32 else 0.7
        assert (row - exact[stop - 1]).abs().max() < tolerance


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(0.9, 50, 0.95, seed=7)])
def test_tokens_are_those_of_the_cpu_alone_and_together(params: SamplingParams) -> None:
    prompts = {f"r{i}": random_ids(3 + 9 * i, seed=i) for i in range(8)}
    executor = _executor(torch.float32, num_blocks=128)
    run = Run(executor)
    for name, ids in prompts.items():
        run.add(name, ids, 24, params)
        run.loop.step()
    run.finish()
    for name, ids in prompts.items():
        expected = alone(tiny_executor(), ids, 24, params)
        assert alone(executor, ids, 24, params) == expected
        assert run.tokens(name) == expected


def test_a_chunk_that_samples_nothing_is_over_when_its_step_ends() -> None:
    executor = _executor(torch.bfloat16)
    for samples in (True, False):
        executor.add_request("a", SamplingParams())
        chunk = sequence(random_ids(500, seed=1), table=range(32), samples=samples)
        executor.execute(plan(chunk))
        assert torch.cuda.current_stream().query(), "work is left on the GPU"


def test_a_step_on_cuda_tells_no_stages() -> None:
    executor = _executor(torch.bfloat16)
    run = Run(executor)
    run.add("a", random_ids(20, seed=1), 3)
    run.finish()
    assert all(not event.stages for event in run.events if hasattr(event, "stages"))  # type: ignore[attr-defined]
