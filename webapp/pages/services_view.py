"""The report's part on services under load, as the page of the validation shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.i18n import Texts

METRICS = ("ttft", "itl", "e2e")


@dataclass(frozen=True, slots=True)
class ServiceGoal:
    """A goal over the runs, and what came out, as words."""

    name: str
    runs: int
    at_most: str
    median: str
    shipped: str
    largest: str
    met: bool


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """A measured and a predicted time in milliseconds, and the error, as words."""

    measured: str
    predicted: str
    error: str


@dataclass(frozen=True, slots=True)
class ServiceRun:
    """One run; ``times`` of TTFT, ITL and E2E, None where it was not published."""

    name: str
    deployment: str
    requests: int
    rate: str
    statistic: str
    times: tuple[ServiceTime | None, ...]


@dataclass(frozen=True, slots=True)
class ServicesView:
    """The section: goals, runs, what is assumed and what the simulation leaves out."""

    goals: tuple[ServiceGoal, ...]
    runs: tuple[ServiceRun, ...]
    assumed: tuple[str, ...]
    sources: tuple[str, ...]
    findings: tuple[tuple[str, str], ...]


def services_view(document: Mapping[str, Any], said: Texts) -> ServicesView:
    """The section in the reader's language, from the report's "serving"."""
    runs = document["runs"]
    return ServicesView(
        goals=tuple(_goal(item, said) for item in document["goals"]),
        runs=tuple(_run(item) for item in runs),
        assumed=tuple(said.gettext(words) for words in _assumed(document)),
        sources=tuple(sorted({run["source"].partition(" ")[0] for run in runs})),
        findings=tuple(
            (said.gettext(item["title"]), said.gettext(item["text"]))
            for item in document["findings"]
        ),
    )


def services_messages(document: Mapping[str, Any]) -> set[str]:
    """Texts of the section that the page translates."""
    told = {text for item in document["findings"] for text in (item["title"], item["text"])}
    return {item["name"] for item in document["goals"]} | told | set(_assumed(document))


def _assumed(document: Mapping[str, Any]) -> list[str]:
    return sorted({words for run in document["runs"] for words in run["assumed"]})


def _goal(item: Mapping[str, Any], said: Texts) -> ServiceGoal:
    return ServiceGoal(
        said.gettext(item["name"]),
        item["unseen"]["runs"],
        f"{item['at_most']:.0%}",
        f"{item['unseen']['median']:.1%}",
        f"{item['shipped']['median']:.1%}",
        f"{item['unseen']['largest']:.0%}",
        item["met"],
    )


def _run(item: Mapping[str, Any]) -> ServiceRun:
    return ServiceRun(
        item["id"],
        item["deployment"],
        item["requests"],
        f"{item['requests_per_s']:.2f}",
        item["statistic"],
        tuple(_time(item, metric) for metric in METRICS),
    )


def _time(item: Mapping[str, Any], metric: str) -> ServiceTime | None:
    error = item["error"][metric]
    if error is None:
        return None
    measured, predicted = item["measured"][metric], item["unseen"][metric]
    return ServiceTime(f"{1e3 * measured:,.1f}", f"{1e3 * predicted:,.1f}", f"{error:+.1%}")
