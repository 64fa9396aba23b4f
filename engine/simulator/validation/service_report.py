"""The part of the report on services under load, as text and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence

from engine.simulator.quantity import Document
from engine.simulator.validation.service_scores import (
    SERVICE_GOALS,
    MetricName,
    ServiceErrors,
    ServiceScore,
    by_deployment,
    deployment_name,
    service_errors,
    service_goal_lines,
)
from engine.simulator.validation.services import Latencies

SERVICE_FINDINGS = (
    (
        "One model and one project carry the medians",
        "23 of the 26 runs are Llama 3.1 70B under vLLM 0.6.0 on 2, 4 and 8 H100, mostly at light "
        "load: of them only means are published, and the chunk of 512 tokens is that version's "
        "default, not stated. The three other runs are shown beside them, deployment by "
        "deployment. More runs with times by request, near saturation, would close this.",
    ),
    (
        "First tokens of short prompts",
        "With prompts of 75 tokens TTFT is predicted 5 to 12 ms too short, on 8 devices most: "
        "that is a third there. One constant stands for host and connection, while what is "
        "missing grows with the devices. Runs of one request at a time, by version and number of "
        "devices, would give it.",
    ),
    (
        "Steps grow faster with the batch",
        "Under vLLM 0.6.0 each further sequence adds about 0.5 ms to a step, whatever the number "
        "of devices; the calibrated cost of a sequence and its cache is about a third of that. "
        "Hence 5 to 16% short gaps in the runs of long answers, where eight and more run at once. "
        "That version prepares inputs, samples and detokenizes in one thread; a profile of it by "
        "batch would close this.",
    ),
    (
        "Eight devices, little to do",
        "The gaps of 8 H100 are predicted up to 13% too long with shipped values and up to 6% with "
        "values that never saw the H100: the latency of an all-reduce is taken to grow with each "
        "doubling of the devices, while one-shot all-reduces over NVSwitch hardly grow. Their "
        "times by the number of devices would close this.",
    ),
    (
        "All-reduce over PCIe",
        "On two L40S the all-reduce of a prompt's activations is priced by what other PCIe "
        "machines reached; it makes steps with a prompt in them too long, and TTFT by half or "
        "more. All-reduce times of Ada cards over PCIe by size would close this.",
    ),
    (
        "Groups that share experts wait for one another",
        "Two data-parallel groups with shared experts step together: each waits for the other's "
        "prompts. Here groups step by themselves, so that TTFT is a third too short, with gaps and "
        "E2E right. A lock step of the groups would close it.",
    ),
    (
        "Full queues",
        "On one RTX PRO 6000 all 128 places are taken for most of the run, so TTFT is waiting: "
        "gaps predicted 8% too long become 11% of TTFT and 10% of E2E. Published measurements of "
        "this card, of which there are none among the rows, would close it.",
    ),
)


def services_section(scores: Sequence[ServiceScore]) -> str:
    """The section as Markdown."""
    return "\n".join(
        [
            "## A service under load",
            "",
            f"{len(scores)} measured services, request by request: each request's arrival and "
            "lengths go through the serving simulator with the settings of the run's engine "
            "(`engine/catalog/data/measurements/serving`). Nothing is fitted to these runs, and "
            "none of their projects is among the rows above. vLLM before 0.8 and since are two "
            "engines, as everywhere here. Compared are p50, or means where only means are "
            "published. Columns as above: shipped efficiencies, and those of the fold that never "
            "saw the device; goals are judged on the latter.",
            "",
            "| goal (median error) | runs | at most | unseen | shipped | unseen p90 | worst |",
            "|-|-|-|-|-|-|-|",
            *(
                f"| {line.goal.name} | {line.unseen.runs} | {line.goal.error:.0%} | "
                f"**{line.unseen.median:.1%}** {'met' if line.met else 'missed'} | "
                f"{line.shipped.median:.1%} | {line.unseen.p90:.0%} | {line.unseen.largest:.0%} |"
                for line in service_goal_lines(scores)
            ),
            "",
            "| deployment (median error, unseen) | runs | TTFT | ITL | E2E |",
            "|-|-|-|-|-|",
            *(
                f"| {name} | {len(group)} | "
                + " | ".join(_median(group, goal.metric) for goal in SERVICE_GOALS)
                + " |"
                for name, group in by_deployment(scores).items()
            ),
            "",
            "### Run by run",
            "",
            "Measured time, and the error of the prediction: unseen, shipped in brackets.",
            "",
            "| run | of | TTFT | ITL | E2E |",
            "|-|-|-|-|-|",
            *(
                f"| {score.run.id} | {score.run.statistic} | "
                + " | ".join(_cell(score, goal.metric) for goal in SERVICE_GOALS)
                + " |"
                for score in scores
            ),
            "",
            "What the sources leave open, and is assumed: "
            + "; ".join(sorted({words for score in scores for words in score.run.assumed}))
            + ".",
            "",
            "What the simulation leaves out, and what would close it:",
            "",
            *(f"- **{title}.** {text}" for title, text in SERVICE_FINDINGS),
        ]
    )


def _median(group: Sequence[ServiceScore], metric: MetricName) -> str:
    errors = service_errors(group, metric)
    return "-" if errors is None else f"{errors.median:.1%}"


def _cell(score: ServiceScore, metric: MetricName) -> str:
    unseen, shipped = score.error(metric), score.error(metric, "shipped")
    if unseen is None or shipped is None:
        return "-"
    measured = getattr(score.run.measured, metric)
    return f"{1e3 * measured:,.1f} ms {unseen:+.1%} ({shipped:+.1%})"


def services_document(scores: Sequence[ServiceScore]) -> Document:
    """Goals, runs and findings as JSON values; times in seconds."""
    return {
        "goals": [
            {
                "metric": line.goal.metric,
                "name": line.goal.name,
                "at_most": line.goal.error,
                "met": line.met,
                "unseen": _errors(line.unseen),
                "shipped": _errors(line.shipped),
            }
            for line in service_goal_lines(scores)
        ],
        "runs": [_run(score) for score in scores],
        "findings": [{"title": title, "text": text} for title, text in SERVICE_FINDINGS],
    }


def _run(score: ServiceScore) -> Document:
    run = score.run
    rows = run.trace().rows
    span = (rows[-1].arrival or 0.0) - (rows[0].arrival or 0.0)
    return {
        "id": run.id,
        "deployment": deployment_name(run),
        "requests": len(rows),
        "requests_per_s": round((len(rows) - 1) / span, 4),
        "statistic": run.statistic,
        "assumed": list(run.assumed),
        "source": run.source,
        "measured": _times(run.measured),
        "shipped": _times(score.shipped),
        "unseen": _times(score.unseen),
        "error": {
            goal.metric: None if error is None else round(error, 4)
            for goal in SERVICE_GOALS
            for error in (score.error(goal.metric),)
        },
    }


def _times(latencies: Latencies) -> Document:
    return {
        name: None if value is None else float(f"{value:.5g}")
        for name, value in latencies._asdict().items()
    }


def _errors(errors: ServiceErrors) -> Document:
    return {
        "runs": errors.runs,
        "median": round(errors.median, 4),
        "p90": round(errors.p90, 4),
        "largest": round(errors.largest, 4),
    }
