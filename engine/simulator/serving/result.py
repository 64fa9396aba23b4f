"""What a serving run found, in seconds, tokens and shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.simulator.cost_model import CostModel
from engine.simulator.quantity import Document
from engine.simulator.serving.document import write_result
from engine.simulator.serving.metering import MeteredCostModel, roofline_curve
from engine.simulator.serving.quantiles import Distribution
from engine.simulator.serving.recorder import Statistics, Totals
from engine.simulator.serving.scenario import ServingScenario
from engine.simulator.serving.series import TimeSeries


@dataclass(frozen=True, slots=True)
class LittlesLaw:
    """Whether requests were conserved: L = λ W over the whole run, which begins and ends empty.

    ``in_system`` is L, integrated over the events; ``rate`` is λ in requests/s, ``time`` W in s.
    """

    in_system: float
    rate: float
    time: float

    @property
    def error(self) -> float:
        """How far λ W is from L, as a share of it."""
        return (
            abs(self.in_system - self.rate * self.time) / self.in_system if self.in_system else 0.0
        )


@dataclass(frozen=True, slots=True)
class ServingResult:
    """Distributions are over answered requests, of ``itl`` over every gap; None where there is
    nothing to count. ``span`` is the time from the first arrival to the last answer [s].
    ``mfu`` and ``mbu`` are shares of all devices' peaks over the span, None where no peak is known.
    """

    scenario: ServingScenario
    cost_model: CostModel
    kv_blocks: int
    totals: Totals
    span: float
    ttft: Distribution | None
    itl: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    queued: Distribution | None
    series: TimeSeries
    mfu: float | None
    mbu: float | None

    @classmethod
    def of(
        cls,
        scenario: ServingScenario,
        cost_model: CostModel,
        kv_blocks: int,
        statistics: Statistics,
        meters: Sequence[MeteredCostModel],
    ) -> ServingResult:
        """The figures of a run that has ended."""
        totals = statistics.totals
        span = max(totals.last_finish - totals.first_arrival, 0.0) if totals.finished else 0.0
        curve = roofline_curve(cost_model)
        mfu = mbu = None
        if curve is not None and span:
            all_time = span * scenario.units
            mfu = sum(meter.flops for meter in meters) / (all_time * curve.peak)
            mbu = sum(meter.bytes for meter in meters) / (all_time * curve.bandwidth)
        return cls(
            scenario=scenario,
            cost_model=cost_model,
            kv_blocks=kv_blocks,
            totals=totals,
            span=span,
            ttft=statistics.ttft.summary(),
            itl=statistics.itl.summary(),
            tpot=statistics.tpot.summary(),
            e2e=statistics.e2e.summary(),
            queued=statistics.queued.summary(),
            series=statistics.series.means(totals.last_finish),
            mfu=mfu,
            mbu=mbu,
        )

    def _per_second(self, count: float) -> float:
        return count / self.span if self.span else 0.0

    @property
    def requests_per_s(self) -> float:
        """Requests answered, over the span."""
        return self._per_second(self.totals.finished)

    @property
    def input_tokens_per_s(self) -> float:
        """Prompt tokens of answered requests, those found in a cache included."""
        return self._per_second(self.totals.prompt_tokens)

    @property
    def output_tokens_per_s(self) -> float:
        return self._per_second(self.totals.output_tokens)

    @property
    def good_share(self) -> float | None:
        """Requests that keep every limit, of all that came; None without a limit."""
        totals = self.totals
        if not self.scenario.slo.is_given or not totals.arrived:
            return None
        return totals.good / totals.arrived

    @property
    def goodput(self) -> float | None:
        """Requests/s that keep every limit; None without a limit."""
        return None if self.good_share is None else self._per_second(self.totals.good)

    @property
    def busy_share(self) -> float:
        """Time in which a step ran, of the span of all units."""
        return self._per_second(self.totals.busy) / self.scenario.units

    @property
    def mean_batch(self) -> float | None:
        """Running requests of the mean step."""
        return self.totals.batch / self.totals.steps if self.totals.steps else None

    @property
    def prefix_hit_rate(self) -> float | None:
        """Prompt tokens that a prefix cache gave when a request first started, of all."""
        totals = self.totals
        return totals.cached_tokens / totals.prompt_tokens if totals.prompt_tokens else None

    @property
    def littles_law(self) -> LittlesLaw:
        totals = self.totals
        mean = totals.e2e / totals.finished if totals.finished else 0.0
        return LittlesLaw(self._per_second(totals.in_system), self.requests_per_s, mean)

    def to_document(self) -> Document:
        """The result as JSON values."""
        return write_result(self)
