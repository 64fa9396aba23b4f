"""The document of a simulation: every number with its unit, formula and source."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from engine.catalog.kv_cache import kv_groups
from engine.catalog.precision import NumberFormat, whole
from engine.catalog.units import bytes_label, count, si_label, time_label
from engine.simulator.kv_formulas import entry_name, kv_per_token_formula
from engine.simulator.limits_document import write_limits
from engine.simulator.quantity import Document, Sources, quantity
from engine.simulator.run_document import write_estimates, write_run
from engine.simulator.step_document import write_step

if TYPE_CHECKING:
    from engine.simulator.report import SimulationReport


def write_document(report: SimulationReport) -> Document:
    """The report as JSON values; quantities are {value, unit, kind, formula, source, label}."""
    return _Writer(report).document()


class _Writer:
    """Puts a report into words and numbers."""

    def __init__(self, report: SimulationReport) -> None:
        self.report = report
        self.model = report.cost_model.model
        self.hardware = report.cost_model.hardware
        self.sources = Sources.of(self.model, self.hardware)

    def document(self) -> Document:
        report, runs = self.report, self.runs()
        return {
            "scenario": self.scenario(),
            "model": self.model_entry(),
            "hardware": self.hardware_entry(),
            "formats": self.formats(),
            "assumptions": report.assumptions,
            **self.latencies(runs["ideal"]),
            "memory": self.memory(),
            "prefill": write_step(report.prefill, self.sources),
            "decode": {
                **write_step(report.decode, self.sources),
                **self.decode_extras(),
            },
            **self.roofline(),
            **runs,
            "limits": write_limits(report.capacity, report.ideal, self.sources),
        }

    def runs(self) -> dict[str, Document]:
        """The closed form at ideal and at typical speed."""
        report, asked = self.report, self.report.scenario
        rest = (self.sources, asked.usd_per_hour, asked.idle_share)
        return {
            "ideal": write_run(report.ideal, *rest),
            "typical": write_estimates(report.typical, *rest),
        }

    # ── what was asked, of what ──────────────────────────────────────────────────────────────

    def scenario(self) -> Document:
        asked = self.report.scenario
        echo = asdict(asked)
        # Ids as the catalogue writes them; what was given as an object comes back as it was.
        if isinstance(asked.model, str):
            echo["model"] = self.model.id
        if isinstance(asked.hardware, str):
            echo["hardware"] = self.hardware.id
        return echo

    def model_entry(self) -> Document:
        model = self.model
        return {
            "id": model.id,
            "family": model.family,
            "source": model.source,
            "verified": model.verified,
            "notes": model.notes,
        }

    def hardware_entry(self) -> Document:
        hardware = self.hardware
        return {
            "id": hardware.id,
            "name": hardware.name,
            "kind": hardware.kind,
            "sources": list(hardware.sources),
            "unverified": list(hardware.unverified),
            "notes": hardware.notes,
        }

    def formats(self) -> Document:
        formats = self.report.cost_model.formats
        rates = {"matmul": formats.matmul.used, "attention": formats.attention.used}
        return {
            "weights": _format(formats.weights),
            "kv": _format(formats.kv),
            "activations": _format(formats.activations),
            "compute": rates,
        }

    # ── what came out ────────────────────────────────────────────────────────────────────────

    def latencies(self, ideal: Document) -> Document:
        """Of the loop where it ran, else those of the closed form."""
        report, asked = self.report, self.report.scenario
        if not asked.is_plain:
            names = {"ttft": "ttft", "itl": "tpot", "tokens_per_s": "tokens_per_s"}
            return {name: ideal[found] for name, found in names.items()}
        gaps = asked.batch * asked.decode_steps
        itl_formula = (
            f"mean of {gaps:,} gaps between tokens = ({time_label(report.makespan)} - "
            f"{time_label(report.ttft)}) / {asked.decode_steps:,} decode steps"
            if asked.decode_steps
            else "one output token has no gap after it"
        )
        tokens = asked.batch * asked.output_tokens
        return {
            "ttft": quantity(
                report.ttft,
                "s",
                f"time from arrival to the first token = the step of {asked.batch:,} × "
                f"{asked.prompt_tokens:,} prompt tokens = {time_label(report.prefill.time)}",
                self.sources.loop,
            ),
            "itl": quantity(report.itl, "s", itl_formula, self.sources.loop),
            "tokens_per_s": quantity(
                report.tokens_per_s,
                "tokens/s",
                f"{asked.batch:,} × {asked.output_tokens:,} = {tokens:,} output tokens / "
                f"{time_label(report.makespan)} from arrival to the last one",
                self.sources.loop,
            ),
        }

    def memory(self) -> Document:
        needs, formats = self.report.memory, self.report.cost_model.formats
        capacity = f"{needs.devices} × {bytes_label(self.hardware.memory_bytes)}"
        bits = f"{formats.weights.bits:g} bits / 8"
        weights = f"{self.model.num_parameters:,} parameters × {bits}"
        layout = self.report.cost_model.layout
        replicated = " + parts kept on every device" if needs.devices > 1 else ""
        if layout.owners > 1:
            replicated += f" - the routed experts of {layout.owners - 1} other groups"
        fits = self.report.fits
        verdict = f"{bytes_label(needs.total)} {'≤' if needs.fits else '>'} {capacity}"
        if fits is not needs.fits:
            verdict += ", but the fullest stage holds more than its device has"
        verdict += ", of the whole memory, no part kept free: limits.fits keeps some free"
        source = self.sources.structure
        return {
            "weights": quantity(needs.weights, "B", weights + replicated, source),
            "kv_cache": quantity(needs.kv_cache, "B", self.kv_formula(), source),
            "kv_bytes_per_token": quantity(
                needs.kv_bytes_per_token,
                "B",
                kv_per_token_formula(self.model, formats.kv.bits),
                source,
            ),
            "activations": quantity(
                needs.activations.bytes,
                "B",
                needs.activations.formula,
                source,
            ),
            "total": quantity(needs.total, "B", "weights + kv_cache + activations", source),
            "capacity": quantity(needs.capacity, "B", capacity, self.sources.hardware),
            "fits": quantity(fits, "bool", verdict, self.sources.rates),
            "resident": quantity(needs.weights, "B", weights + replicated, source),
            "streamed": quantity(needs.streamed, "B", self.streamed_formula() + replicated, source),
            "kv_blocks": quantity(
                needs.paged.sequences * needs.paged.blocks,
                "blocks",
                f"{needs.paged.sequences:,} × ⌈{needs.paged.tokens:,} / {needs.paged.block_size}⌉",
                source,
            ),
            "unused_slots": quantity(
                needs.paged.sequences * needs.paged.unused,
                "slots",
                f"{needs.paged.sequences:,} × ({needs.paged.allocated:,} - {needs.paged.tokens:,})",
                source,
            ),
        }

    def streamed_formula(self) -> str:
        needs, bits = self.report.memory, self.report.cost_model.formats.weights.bits
        streamed = f"{self.model.num_streamed_parameters:,} parameters × {bits:g} bits / 8"
        moe, sequences = self.model.moe, needs.paged.sequences
        owners = self.report.cost_model.layout.owners
        if moe is None or sequences * owners == 1:
            return streamed
        hit = moe.expected_experts(sequences * owners) / owners
        return (
            f"{streamed} + the experts of {sequences:,} tokens, {hit:,.4g} instead of {moe.top_k} "
            "a layer"
        )

    def kv_formula(self) -> str:
        """Entries of each group of layers in whole blocks, and the states."""
        needs, model = self.report.memory, self.model
        paged = needs.paged
        copies = self.report.cost_model.group.cache_copies(model)
        times = "" if copies == 1 else f" × {copies:g} copies"
        parts = [
            f"{group.layers} layers × {whole(group.bytes_per_entry):,} B × "
            f"{group.entries(paged.tokens, paged.block_size):,} {entry_name(group)}{times}"
            for group in kv_groups(model, self.report.cost_model.formats.kv.bits)
            if group.layers
        ]
        if model.state_bytes_per_sequence:
            parts.append(f"{model.state_bytes_per_sequence:,} B of states")
        sequences = count(paged.sequences, "request")
        return f"{sequences} × ({' + '.join(parts)}), in blocks of {paged.block_size}"

    def decode_extras(self) -> Document:
        """The context of the shown step, and the floor under it that memory alone sets."""
        report = self.report
        asked, needs = report.scenario, report.memory
        context = asked.prompt_tokens + asked.shown_decode_step
        kv_read = sum(item.operator.kv_bytes for item in report.decode.operators)
        model = report.cost_model
        streamed = model.step.streamed_weight_bytes(report.decode.shape.tokens)
        resident = needs.weights / model.group.devices
        bandwidth = model.roofline.bandwidth
        return {
            "context_tokens": quantity(
                context,
                "tokens",
                f"{asked.prompt_tokens:,} + {asked.shown_decode_step:,}",
                self.sources.loop,
            ),
            "bandwidth_floor": quantity(
                (streamed + kv_read) / bandwidth,
                "s",
                f"({streamed:,.0f} B of weights + {kv_read:,.0f} B of KV "
                f"cache) / {si_label(bandwidth, 'B/s')}",
                self.sources.rates,
            ),
            "weights_floor": quantity(
                resident / bandwidth,
                "s",
                f"all resident weights: {resident:,.0f} B / {si_label(bandwidth, 'B/s')}",
                self.sources.rates,
            ),
        }

    def roofline(self) -> Document:
        model = self.report.cost_model
        curve, rate = model.curve, model.formats.matmul
        devices = model.group.devices
        one = f"{devices} × {si_label(rate.flops, 'FLOP/s')} dense {rate.used}"
        bandwidth = f"{devices} × {si_label(model.roofline.bandwidth, 'B/s')}"
        source = self.sources.hardware
        return {
            "ridge_point": quantity(
                curve.ridge_point,
                "FLOP/B",
                f"{si_label(rate.flops, 'FLOP/s')} / {si_label(model.roofline.bandwidth, 'B/s')}",
                source,
            ),
            "peak": quantity(curve.peak, "FLOP/s", one, source),
            "bandwidth": quantity(curve.bandwidth, "B/s", bandwidth, source),
        }


def _format(item: NumberFormat) -> Document:
    return {"name": item.name, "bits": item.bits, "description": item.description}
