"""Closed forms for requests that come and go, over the decode time of each batch size.

One group of devices serves. A request's prefill stops the others' decoding; batches follow from
Little's law. N requests in flight, p the prefill of one, T(N) a decode step, G output tokens:
a cycle in which each of N requests is answered takes N p + G T(N).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Curve:
    """Decode step times [s] at batch sizes ``sizes``; ``prefill`` is of one prompt among others,
    ``alone`` of one by itself; ``output`` tokens a request."""

    sizes: tuple[float, ...]
    times: tuple[float, ...]
    prefill: float
    alone: float
    output: int

    def step(self, batch: float) -> float:
        """T(N), linear between the sizes."""
        sizes, times = self.sizes, self.times
        if batch <= sizes[0] or len(sizes) == 1:
            return times[0]
        place = min(bisect_right(sizes, batch), len(sizes) - 1)
        low, high = sizes[place - 1], sizes[place]
        if high == low:
            return times[place]
        share = min((batch - low) / (high - low), 1.0)
        return times[place - 1] + share * (times[place] - times[place - 1])

    def rate(self, batch: float) -> float:
        """Requests/s with ``batch`` always in flight: N / (N p + G T(N))."""
        return batch / (batch * self.prefill + self.output * self.step(batch))


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Requests/s, mean TTFT and TPOT [s]."""

    rate: float
    ttft: float
    tpot: float


@dataclass(frozen=True, slots=True)
class Offered:
    """Requests/s answered, mean TTFT and TPOT [s] at an offered rate."""

    rate: float
    ttft: float
    tpot: float


def closed_loop(curve: Curve, clients: float, most: float, *, burst: bool = False) -> ClosedLoop:
    """``clients`` requests in flight, of which ``most`` fit; a ``burst`` arrives all at once.

    In a burst all prompts run before the decoding: the mean request waits for half of them, and
    its first gap spans the other half.
    """
    active = min(clients, most)
    rate = curve.rate(active)
    step = curve.step(active)
    others = max(active - 1, 0.0) * curve.prefill
    tpot = step + others / max(curve.output, 1)
    if burst:
        return ClosedLoop(rate, active * curve.prefill / 2, step + others / 2 / curve.output)
    busy = min(rate * curve.prefill, 0.99)
    waiting = (clients - active) / rate + busy * curve.alone / 2
    return ClosedLoop(rate, waiting + _first_step(curve, active - 1, tpot), tpot)


def _first_step(curve: Curve, others: float, tpot: float) -> float:
    """A prompt waits for half a step of the others, then runs in one step with them."""
    company = min(max(others, 0.0), 1.0)
    return company * tpot / 2 + max(curve.alone, company * tpot)


def offered_load(curve: Curve, rate: float, most: float, requests: int | None) -> Offered:
    """Poisson arrivals at ``rate``: Little's law gives the batch, its step time the TPOT.

    A run of ``requests`` also has an end, in which nothing arrives any more; and where more
    arrives than is answered, its batch grows until the last arrival.
    """
    bound = most if requests is None else min(most, requests / 2)
    low, high = 0.0, bound
    for _ in range(_ROUNDS):
        batch = (low + high) / 2
        busy = min(rate * curve.prefill, 0.95)
        tpot = curve.step(batch) / (1 - busy)
        if rate * curve.output * tpot > batch:
            low = batch
        else:
            high = batch
    batch = high
    busy = min(rate * curve.prefill, 0.95)
    step = curve.step(batch)
    answered = min(rate, curve.rate(max(batch, 1.0)) if batch >= bound * 0.999 else rate)
    tpot = step + answered * curve.prefill * step / (1 - busy)
    ttft = _first_step(curve, batch, tpot) + busy * curve.alone / (2 * (1 - busy))
    if requests is not None:
        answered = requests / (requests / answered + ttft + curve.output * tpot)
    return Offered(answered, ttft, tpot)


def largest_rate(curve: Curve, most: float, tpot: float) -> ClosedLoop:
    """The load at which the mean TPOT reaches ``tpot`` seconds, or all ``most`` places are taken.

    So runs a service that is loaded as far as its latency limits allow.
    """
    low, high = min(1.0, most), most
    for _ in range(_ROUNDS):
        batch = (low + high) / 2
        if closed_loop(curve, batch, most).tpot < tpot:
            low = batch
        else:
            high = batch
    return closed_loop(curve, low, most)
