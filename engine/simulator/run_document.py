"""A run in closed form as a document: its times and what they are made of, money and energy.

One writer for ideal and typical times: the same names, formulas and units.
"""

from __future__ import annotations

from typing import cast

from engine.catalog.units import GB, count, si_label, time_label
from engine.simulator.energy import energy
from engine.simulator.estimates import Estimate, Estimates
from engine.simulator.money_document import write_cost, write_energy
from engine.simulator.phases import Decode
from engine.simulator.pipeline import Pipeline
from engine.simulator.quantity import Document, Sources, quantity
from engine.simulator.run import BatchRun


def write_run(
    run: BatchRun, sources: Sources, usd_per_hour: float | None, idle_share: float
) -> Document:
    """Times, their parts, cost and energy of the run."""
    return _RunWriter(run, sources).document(usd_per_hour, idle_share)


def write_estimates(
    found: Estimates, sources: Sources, usd_per_hour: float | None, idle_share: float
) -> Document:
    """The same of a typical run; its times carry ``p10`` and ``p90``."""
    document = write_run(found.run, sources, usd_per_hour, idle_share)
    engine = found.run.deployment.engine_name
    document["engine"] = engine
    for name in ("ttft", "tpot", "e2e", "tokens_per_s"):
        estimate: Estimate | None = getattr(found, name)
        if estimate is None:
            continue
        entry = cast(Document, document[name])
        bounds: Document = {"p10": estimate.p10, "p90": estimate.p90}
        if name in ("e2e", "tokens_per_s"):
            bounds["formula"] = f"{entry['formula']}; {found.whole_words}"
        document[name] = {**entry, **bounds}
    return document


class _RunWriter:
    """Puts one run into words and numbers."""

    def __init__(self, run: BatchRun, sources: Sources) -> None:
        self.run = run
        ideal = run.deployment.times == "ideal"
        rates = sources.rates
        self.source = rates if ideal else f"{run.deployment.calibrated_by}; {rates}"
        self.sources = sources

    def document(self, usd_per_hour: float | None, idle_share: float) -> Document:
        return {
            **self.times(),
            "parts": self.parts(),
            "cost": write_cost(self.run, usd_per_hour, self.source, self.sources.hardware),
            "energy": write_energy(energy(self.run, idle_share), self.sources.hardware),
        }

    def seconds(self, value: float | None, formula: str) -> Document:
        return quantity(value, "s", formula, self.source)

    # ── times ────────────────────────────────────────────────────────────────────────────────

    def times(self) -> Document:
        run, batch = self.run, self.run.batch
        steps = batch.output_tokens - 1
        nothing = "one output token has no gap after it"
        tokens = batch.requests * batch.output_tokens
        return {
            "ttft": self.seconds(run.ttft, self.ttft_formula()),
            "tpot": self.seconds(
                run.tpot, f"{time_label(run.decode_time)} / {steps:,} tokens" if steps else nothing
            ),
            "e2e": self.seconds(
                run.e2e,
                f"{time_label(run.before_prefill + run.prefill.total)} until the last first token "
                f"+ {time_label(run.decode_time)} of decoding",
            ),
            "tokens_per_s": quantity(
                run.tokens_per_s,
                "tokens/s",
                f"{batch.requests:,} × {batch.output_tokens:,} = {tokens:,} output tokens / "
                f"{time_label(run.e2e)}",
                self.source,
            ),
        }

    def ttft_formula(self) -> str:
        run = self.run
        words = [f"{time_label(run.prefill.mean)} of prefill, the mean of the requests"]
        if run.first_token:
            words.append(f"{time_label(run.first_token)} of host and connection")
        if run.restored and run.restored.in_ttft:
            words.append(f"{time_label(run.restored.bring_back)} to bring the prefix back")
        return " + ".join(words)

    # ── what they are made of ────────────────────────────────────────────────────────────────

    def parts(self) -> Document:
        run = self.run
        parts: Document = {
            "computed_tokens": quantity(
                run.prompts.new,
                "tokens",
                f"{run.prompts.tokens:,} prompt tokens - {run.prompts.cached:,} found in the "
                f"cache, in whole blocks of {run.deployment.block_size}",
                self.sources.structure,
            ),
            "prefill_steps": quantity(
                run.prefill.steps, "steps", self.steps_formula(), "own count"
            ),
            "prefill": self.seconds(
                run.prefill.total,
                f"{count(run.prefill.steps, 'step')} until the last prompt is done"
                f"{self.pipeline_words()}",
            ),
            "longest_gap": self.seconds(
                run.prefill.gap,
                "the longest step that a decoding neighbour waits for: "
                + ("a whole prompt" if run.prompts.chunk is None else "a chunk")
                + " beside the decodes of the others",
            ),
        }
        if run.decode is not None:
            parts |= self.decoding(run.decode)
        if run.deployment.layout.stages > 1:
            parts["bubble"] = self.bubble()
        return {**parts, **self.moving()}

    def steps_formula(self) -> str:
        prompts = self.run.prompts
        if prompts.chunk is None or self.run.prefill.steps == 1:
            return "all prompts in one step"
        if prompts.new <= prompts.chunk:
            return f"⌈{prompts.sequences:,} / ⌊{prompts.chunk:,} / {prompts.new:,}⌋⌉"
        return f"{prompts.sequences:,} × ⌈{prompts.new:,} / {prompts.chunk:,}⌉"

    def pipeline_words(self) -> str:
        stages = self.run.deployment.layout.stages
        return "" if stages == 1 else f", through {stages} stages that were empty before"

    def decoding(self, decode: Decode) -> Document:
        speculation = self.run.features.speculation
        verified = 1 if speculation is None else 1 + speculation.drafts
        parts: Document = {
            "decode_step": self.seconds(
                decode.step,
                f"the mean step of {self.run.group_requests:,} × {verified} positions while the "
                f"context grows by {self.run.batch.output_tokens - 1:,} tokens",
            )
        }
        if speculation is None:
            return parts
        gamma, alpha = speculation.drafts, speculation.acceptance
        if speculation.draft_model is None:
            words = f"{gamma} × {speculation.draft_fraction:g} of a plain step"
        else:
            words = f"{gamma} steps of {speculation.draft_model}, one after the other"
        return {
            **parts,
            "drafting": self.seconds(decode.drafting, words),
            "tokens_per_step": quantity(
                decode.tokens,
                "tokens",
                f"(1 - {alpha:g}^{gamma + 1}) / (1 - {alpha:g})" if alpha < 1 else f"{gamma} + 1",
                "Leviathan et al. 2023, arXiv 2211.17192: each draft is right by the same chance",
            ),
            "speedup": quantity(
                decode.speedup,
                "×",
                f"plain step of {time_label(decode.plain)} / {time_label(decode.tpot)} a token",
                self.source,
            ),
        }

    def bubble(self) -> Document:
        layout, layers = self.run.deployment.layout, self.run.deployment.model_spec.num_layers
        pipeline = Pipeline(layout.stages, layers)
        parts = pipeline.microbatches(self.run.group_requests)
        share = f"{-(-layers // layout.stages)} / {layers}"
        return quantity(
            pipeline.bubble(parts),
            "share",
            f"1 - {parts} / ({layout.stages} × (1 + ({parts} - 1) × {share})): idle time of the "
            f"stages while {count(parts, 'microbatch').replace('microbatchs', 'microbatches')} of "
            "prompts pass",
            "GPipe, arXiv 1811.06965",
        )

    def moving(self) -> Document:
        """Caches that come back from the host or go to another group."""
        run, features = self.run, self.run.features
        parts: Document = {}
        if run.restored is not None and features.offload is not None:
            link = si_label(features.offload.link_gb_s * GB, "B/s")
            parts["bring_back"] = self.seconds(
                run.restored.bring_back,
                f"{run.restored.bytes:,.0f} B of {run.restored.tokens:,} positions of "
                f"{count(run.group_requests, 'request')} on a device / {link}, not overlapped",
            )
            parts["recompute"] = self.seconds(
                run.restored.recompute,
                f"prefill of {run.restored.tokens:,} positions of "
                f"{count(run.group_requests, 'request')} instead",
            )
        if run.transfer is not None and features.disaggregation is not None:
            link = si_label(features.disaggregation.link_gb_s * GB, "B/s")
            parts["transfer"] = self.seconds(
                run.transfer.time,
                f"{count(run.group_requests, 'request')} × {run.transfer.bytes:,.0f} B / "
                f"({run.transfer.links} links × {link}), before the second token, not overlapped",
            )
            parts["prefill_groups"] = quantity(
                run.transfer.groups,
                "groups",
                "time of prefill / time of decoding: so many prefill groups keep one decode group "
                "busy",
                self.source,
            )
        return parts
