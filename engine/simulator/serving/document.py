"""The document of a serving run: every number with its unit, formula and source."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from engine.simulator.quantity import Document, Sources, Value, quantity
from engine.simulator.serving.arrivals import Arrivals
from engine.simulator.serving.lengths import Lengths
from engine.simulator.serving.quantiles import Distribution
from engine.simulator.serving.workload import TraceWorkload

if TYPE_CHECKING:
    from engine.simulator.serving.result import ServingResult

LITTLES_LAW_TOLERANCE = 0.01


def write_result(result: ServingResult) -> Document:
    """The result as JSON values; quantities are {value, unit, kind, formula, source, label}."""
    return _Writer(result).document()


class _Writer:
    """Puts a result into words and numbers."""

    def __init__(self, result: ServingResult) -> None:
        self.result = result
        model = result.cost_model
        self.source = Sources.of(model.model, model.hardware).loop

    def document(self) -> Document:
        result = self.result
        return {
            "scenario": self.scenario(),
            "assumptions": assumptions(result),
            "requests": self.requests(),
            "latency": self.latencies(),
            "throughput": self.throughput(),
            "utilization": self.utilization(),
            "kv_cache": self.cache(),
            "checks": self.checks(),
            "series": {
                **result.series.to_document(),
                "units": "means over each bin, of all units together: running and waiting in "
                "requests, kv_blocks_used in blocks",
            },
        }

    def _quantity(self, value: Value, unit: str, formula: str) -> Document:
        return quantity(value, unit, formula, self.source)

    def scenario(self) -> Document:
        asked = self.result.scenario
        deployment, workload = asked.deployment, asked.workload
        if isinstance(workload, TraceWorkload):
            described: Document = {
                "kind": "trace",
                "rows": len(workload.trace.rows),
                "speed": workload.speed,
                "requests": workload.requests,
                "arrivals": _named(workload.arrivals),
            }
        else:
            described = {
                "kind": "drawn",
                "requests": workload.requests,
                "arrivals": _named(workload.arrivals),
                "prompts": _named(workload.prompts),
                "outputs": _named(workload.outputs),
                "prefixes": None if workload.prefixes is None else asdict(workload.prefixes),
            }
        return {
            "model": self.result.cost_model.model.id,
            "hardware": self.result.cost_model.hardware.id,
            "layout": asdict(deployment.layout),
            "weights": deployment.weights,
            "kv": deployment.kv,
            "activations": deployment.activations,
            "times": deployment.times,
            "serving_engine": deployment.engine,
            "memory_utilization": deployment.memory_utilization,
            "block_size": deployment.block_size,
            "workload": described,
            "engine": asdict(asked.engine),
            "replicas": asked.replicas,
            "routing": asked.routing.value,
            "slo": asdict(asked.slo),
            "seed": asked.seed,
        }

    def requests(self) -> Document:
        totals = self.result.totals
        counted = {
            "arrived": (totals.arrived, "requests that came"),
            "finished": (totals.finished, "requests that got all their tokens"),
            "refused": (totals.refused, "prompt and answer exceed the context or the whole cache"),
            "preemptions": (totals.preemptions, "times that a request gave its blocks up"),
            "lost_tokens": (totals.lost_tokens, "positions that were computed again for it"),
        }
        return {
            name: self._quantity(value, "", formula) for name, (value, formula) in counted.items()
        }

    def latencies(self) -> Document:
        result = self.result
        rows: dict[str, tuple[Distribution | None, str]] = {
            "ttft": (result.ttft, "first token - arrival, of each request"),
            "itl": (result.itl, "gap between two tokens in a row, every gap of every request"),
            "tpot": (result.tpot, "(last token - first token) / (tokens - 1), of each request"),
            "e2e": (result.e2e, "last token - arrival, of each request"),
            "queueing": (result.queued, "first step - arrival, of each request"),
        }
        return {
            name: {
                "unit": "s",
                "kind": "predicted",
                "formula": formula,
                "source": self.source,
                **(_empty() if found is None else found.to_document()),
            }
            for name, (found, formula) in rows.items()
        }

    def throughput(self) -> Document:
        result = self.result
        return {
            "span": self._quantity(result.span, "s", "last answer - first arrival"),
            "requests_per_s": self._quantity(
                result.requests_per_s, "requests/s", "requests finished / span"
            ),
            "input_tokens_per_s": self._quantity(
                result.input_tokens_per_s, "tokens/s", "prompt tokens of finished requests / span"
            ),
            "output_tokens_per_s": self._quantity(
                result.output_tokens_per_s, "tokens/s", "output tokens of finished requests / span"
            ),
            "good_share": self._quantity(
                result.good_share, "", "requests within every limit / requests that came"
            ),
            "goodput": self._quantity(
                result.goodput, "requests/s", "requests within every limit / span"
            ),
        }

    def utilization(self) -> Document:
        result = self.result
        return {
            "busy_share": self._quantity(
                result.busy_share, "", "seconds in which a step runs / (span × schedulers)"
            ),
            "mfu": self._quantity(result.mfu, "", "FLOPs of all steps / (span × peak FLOP/s)"),
            "mbu": self._quantity(result.mbu, "", "bytes of all steps / (span × bandwidth)"),
            "mean_batch": self._quantity(
                result.mean_batch, "", "running requests, mean over all steps"
            ),
            "steps": self._quantity(result.totals.steps, "", "steps of all schedulers"),
        }

    def cache(self) -> Document:
        result = self.result
        return {
            "blocks": self._quantity(
                result.kv_blocks, "blocks", "of each scheduler, beside weights and activations"
            ),
            "block_size": result.scenario.deployment.block_size,
            "prefix_hit_rate": self._quantity(
                result.prefix_hit_rate, "", "prompt tokens found in the cache / prompt tokens"
            ),
        }

    def checks(self) -> Document:
        law = self.result.littles_law
        return {
            "littles_law": {
                "in_system": self._quantity(law.in_system, "", "L: time average of requests here"),
                "rate": self._quantity(law.rate, "requests/s", "λ: requests finished / span"),
                "time": self._quantity(law.time, "s", "W: mean E2E"),
                "error": self._quantity(law.error, "", "|L - λ W| / L"),
                "holds": law.error <= LITTLES_LAW_TOLERANCE,
            }
        }


def _named(part: Arrivals | Lengths | None) -> Document | None:
    """A part of a workload with the name of its kind."""
    return None if part is None else {"kind": part.kind, **asdict(part)}


def _empty() -> Document:
    names = ("mean", "p50", "p90", "p95", "p99", "min", "max")
    return {"count": 0, **dict.fromkeys(names), "exact": True}


def assumptions(result: ServingResult) -> list[str]:
    """What the run takes for granted, in words."""
    scenario = result.scenario
    deployment, engine = scenario.deployment, scenario.engine
    lines = [
        "Every request gets exactly its output tokens; nobody gives up.",
        "Steps follow one another without a pause: what the scheduler takes between two steps is "
        + (
            "nothing (ideal roofline)."
            if deployment.times == "ideal"
            else "part of a typical step, calibrated on published measurements."
        ),
        "A request that comes during a step waits for its end.",
    ]
    if not engine.chunked_prefill:
        lines.append("Steps that start requests run whole prompts and nothing else.")
    if engine.prefix_caching:
        lines.append("Prompts share blocks of the prefix cache as the workload says they begin.")
    if scenario.units > 1:
        lines.append("Units do not slow each other down, and routing takes no time.")
    if deployment.layout.data > 1:
        lines.append("Data-parallel groups schedule by themselves and do not wait for each other.")
    return lines
