"""Timing single steps: any batch over any context, on a cache that holds a real text."""

from __future__ import annotations

import pytest
import torch

from engine.inference.device import open_device
from engine.inference.executor import TorchExecutor
from engine.inference.lane_settings import parse_lane
from engine.inference.lanes import LaneOpener
from engine.inference.step_timer import StepTimer
from engine.inference.weights.tiny import tiny_random_checkpoint


@pytest.fixture
def executor() -> TorchExecutor:
    opener = LaneOpener(tiny_random_checkpoint(), open_device("cpu"), kv_tokens=640)
    return opener.open(parse_lane("float32")).executor


@pytest.fixture
def timer(executor: TorchExecutor) -> StepTimer:
    return StepTimer(executor, max_context=500, num_tokens=512)


def test_every_block_of_the_cache_holds_a_text(executor: TorchExecutor, timer: StepTimer) -> None:
    # The primed text has 500 positions in 32 blocks, and the cache 40.
    for layer in executor._cache.store.planes:
        for plane_phsd in layer:
            copied = plane_phsd[:, :, 32 * 16 :]
            # Position 0 was computed once more, in another step.
            assert torch.equal(copied[:, :, 1:], plane_phsd[:, :, 1 : 8 * 16])
            assert (copied != 0).any(dim=-1).all()


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        ((1, 499, 1), True),
        ((1, 500, 1), False),
        ((1, 0, 500), True),
        ((40, 15, 1), True),
        ((41, 15, 1), False),
        ((40, 16, 1), False),
    ],
)
def test_what_fits(timer: StepTimer, size: tuple[int, int, int], fits: bool) -> None:
    assert timer.fits(*size) is fits


def test_a_step_is_timed_with_its_stages(timer: StepTimer) -> None:
    seconds, stages = timer.run(8, 60, 1)
    assert set(stages) == {"embed", "layers", "logits", "sample"}
    assert 0 < sum(stages.values()) <= seconds


def test_the_executor_forgets_the_sequences(executor: TorchExecutor, timer: StepTimer) -> None:
    timer.run(5, 0, 3)
    assert len(executor._params) == 5
    timer.release()
    assert not executor._params
    assert timer.run(2, 0, 3)[0] > 0
