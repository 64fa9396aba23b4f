"""Dollars and joules a token, by hand."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.simulator.deployment import Deployment
from engine.simulator.energy import energy
from engine.simulator.features import Disaggregation, Features, Speculation
from engine.simulator.layout import Layout
from engine.simulator.money import HourlyPrice, hourly_price, requests_per_device_hour, token_prices
from engine.simulator.run import Batch, BatchRun, run_batch
from tests.engine.simulator.cases import device

BATCH = Batch(8, 1000, 101)


def _run(
    batch: Batch = BATCH, layout: Layout | None = None, features: Features | None = None
) -> BatchRun:
    deployment = Deployment("llama-3.1-8b", "h100-sxm", layout or Layout())
    return run_batch(deployment, batch, features or Features())


def test_prices_add_up_to_the_devices_time() -> None:
    run = _run(layout=Layout(tensor=2, data=2))
    prices = token_prices(run, 3.0)
    assert prices.output is not None
    paid = 8 * 1000 * prices.prompt / 1e6 + 8 * 100 * prices.output / 1e6
    assert paid == pytest.approx(4 * 3.0 * run.e2e / 3600)
    assert prices.request * 8 == pytest.approx(paid)
    assert requests_per_device_hour(run) * prices.request == pytest.approx(3.0)


def test_the_price_is_ones_own_or_the_catalogues_with_its_source() -> None:
    run = _run()
    own, found = hourly_price(run, 1.23), hourly_price(run)
    assert own == HourlyPrice(1.23, 1.23, "given with the scenario")
    assert found is not None
    assert 0 < found.low <= found.high
    assert found.source
    assert hourly_price(run_batch(Deployment("llama-3.1-8b", device()), BATCH, Features())) is None


def test_one_output_token_has_no_decoding_to_pay() -> None:
    run = _run(Batch(8, 1000, 1))
    prices = token_prices(run, 3.0)
    assert prices.output is None
    assert prices.prompt * 8000 / 1e6 == pytest.approx(3.0 * run.e2e / 3600)
    found = energy(run)
    assert found is not None
    assert found.output is None


def test_a_prefill_group_pays_for_prompts_alone() -> None:
    split, plain = _run(features=Features(disaggregation=Disaggregation(2))), _run()
    assert split.device_seconds[0] == pytest.approx(2 * split.prefill.total)
    assert split.transfer is not None
    assert split.device_seconds[1] == pytest.approx(plain.device_seconds[1] + split.transfer.time)


def test_energy_lies_between_idle_and_tdp() -> None:
    run = _run()
    found = energy(run)
    assert found is not None
    assert found.output is not None
    for phase in (found.prompt, found.output):
        assert 0 < phase.mfu <= 1
        assert 0 < phase.mbu <= 1
        assert 0.2 * 700 <= phase.power <= 700
        assert phase.per_token <= phase.at_most
    # At the roofline prefill computes nearly all the time and decoding reads.
    assert found.prompt.mfu > 0.85
    assert found.output.mbu > 0.95
    assert found.output.at_most == pytest.approx(700 * run.decode_time / (8 * 100))
    assert found.prompt.at_most == pytest.approx(700 * run.prefill.total / 8000)


def test_slower_steps_draw_less_power_and_take_more_energy() -> None:
    ideal, slow = (
        energy(run_batch(Deployment("llama-3.1-8b", "h100-sxm", times=times), BATCH, Features()))
        for times in ("ideal", "typical")
    )
    assert ideal is not None
    assert slow is not None
    assert ideal.output is not None
    assert slow.output is not None
    assert slow.output.power < ideal.output.power
    assert slow.output.per_token > ideal.output.per_token


def test_accepted_drafts_save_energy() -> None:
    plain = energy(_run())
    drafted = energy(_run(features=Features(speculation=Speculation(4, 0.9))))
    assert plain is not None
    assert drafted is not None
    assert plain.output is not None
    assert drafted.output is not None
    assert drafted.output.per_token < 0.4 * plain.output.per_token


def test_an_unknown_tdp_is_no_number() -> None:
    assert energy(run_batch(Deployment("llama-3.1-8b", device()), BATCH, Features())) is None
    with pytest.raises(InvalidRequest) as refused:
        energy(_run(), 1.5)
    assert refused.value.field == "idle_share"
