"""Imported models on devices of one's own are priced as those of the catalogue are."""

from __future__ import annotations

import pytest

from engine.catalog.hardware import get_hardware
from engine.catalog.importing.imported import import_model
from engine.catalog.inline import hardware_from, model_from
from engine.catalog.models import all_models, get_model
from engine.scheduling.plan import SequenceShape
from engine.simulator.step_cost import StepCostModel
from engine.simulator.typical import TypicalCostModel
from tests.engine.catalog.importing.released import RELEASED, released

H100 = get_hardware("h100-sxm")
TWIN = hardware_from(
    {
        "custom": {
            "memory_gb": H100.memory_bytes / 1e9,
            "bandwidth_gb_s": H100.bandwidth / 1e9,
            "dense_tflops": {name: rate / 1e12 for name, rate in H100.dense_flops.items()},
        }
    }
)
BATCH = [SequenceShape(700, 1, samples=True), SequenceShape(0, 300, samples=True)]
IDS = {spec.id for spec in all_models()}


@pytest.mark.parametrize("model_id", sorted(RELEASED))
def test_every_published_file_is_priced_in_the_formats_of_its_checkpoint(model_id: str) -> None:
    found = import_model(released(model_id))
    formats = (found.weights.format_for(found.spec), found.weights.kv or "bf16")
    ideal = StepCostModel(found.spec, TWIN, *formats, found.weights.activations)
    typical = TypicalCostModel(found.spec, TWIN, *formats, found.weights.activations)
    assert 0 < ideal.cost(BATCH).time < typical.cost(BATCH).time
    resident = ideal.step.resident_weight_bytes
    assert resident <= float(found.weights.weight_bytes(found.spec)) * 1.001


@pytest.mark.parametrize(
    "model_id", sorted(RELEASED.keys() & IDS - {"gemma-3-27b", "phi-3-mini-4k"})
)
def test_a_step_costs_what_it_costs_for_the_catalogues_model(model_id: str) -> None:
    """But for two models of which the catalogue took a number from elsewhere."""
    imported = StepCostModel(model_from({"config": released(model_id)}), TWIN).cost(BATCH)
    published = StepCostModel(get_model(model_id), H100).cost(BATCH)
    assert (imported.flops, imported.bytes) == (published.flops, published.bytes)
    assert imported.time == pytest.approx(published.time, rel=1e-12)
