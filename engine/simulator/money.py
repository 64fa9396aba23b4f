"""What tokens cost: the devices' price an hour over the tokens they give in it.

Prompt tokens are charged the devices' time until the last first token, output tokens the time of
decoding. A prefill group of its own is paid for its own part only: other prompts keep it busy.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.simulator.run import BatchRun

SECONDS_AN_HOUR = 3600
MILLION = 10**6


@dataclass(frozen=True, slots=True)
class HourlyPrice:
    """US dollars for an hour of one device: the lowest and the highest found, and where."""

    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """US dollars at one hourly price: a million prompt tokens, as many output tokens, a request.

    ``output`` is None where nothing is decoded.
    """

    prompt: float
    output: float | None
    request: float


def hourly_price(run: BatchRun, own: float | None = None) -> HourlyPrice | None:
    """One's own price, or else the catalogue's; None where the catalogue has none."""
    if own is not None:
        return HourlyPrice(own, own, "given with the scenario")
    price = run.deployment.hardware_spec.price
    return None if price is None else HourlyPrice(price.low, price.high, price.source)


def token_prices(run: BatchRun, usd_per_hour: float) -> TokenPrices:
    """Prices of the run's tokens at so much for an hour of each device."""
    batch = run.batch
    prompts, rest = (usd_per_hour * seconds / SECONDS_AN_HOUR for seconds in run.device_seconds)
    decoded = batch.requests * (batch.output_tokens - 1)
    return TokenPrices(
        prompt=prompts * MILLION / (batch.requests * batch.prompt_tokens),
        output=rest * MILLION / decoded if decoded else None,
        request=(prompts + rest) / batch.requests,
    )


def requests_per_device_hour(run: BatchRun) -> float:
    """Requests that one device serves in an hour, batch after batch."""
    return run.batch.requests * SECONDS_AN_HOUR / sum(run.device_seconds)
