"""The page of benchmark results, from their JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.catalog.units import si_label, significant
from tests.benchmarks.goals import Verdict, verdicts

Document = Mapping[str, Any]

_PEERS = ("transformers", "llama.cpp")


def judge(document: Document) -> list[Verdict]:
    """Which of the goals are met by the lanes of a document."""
    rates: dict[tuple[str, str, str], float] = {}
    shares: dict[tuple[str, str], float] = {}
    for lane, result in _results(document):
        key = (result["workload"], lane)
        rates[*key, ""] = result["ours"]["median"]
        rates |= {(*key, name): peer["median"] for name, peer in result["peers"].items()}
        shares[key] = result["share_of_roofline"]
    return verdicts(rates, shares)


def to_markdown(document: Document) -> str:
    """Conditions of each lane, the tables, the goals."""
    lanes = document["lanes"]
    parts = ["# Benchmark results", _about(document), _conditions(lanes), _rates(document)]
    if any("first_token" in lane for lane in lanes):
        parts += [_first_token_text(lanes), _first_tokens(lanes)]
    judged = judge(document)
    if judged:
        parts += ["## Goals", _goals(judged)]
    parts += ["## Memory", _MEMORY_TEXT, _memory(lanes)]
    return "\n\n".join(parts) + "\n"


def _results(document: Document) -> Iterator[tuple[str, Document]]:
    """Lane by lane for each workload."""
    for workload in document["workloads"]:
        for lane in document["lanes"]:
            for result in lane["results"]:
                if result["workload"] == workload:
                    yield lane["lane"], result


def _about(document: Document) -> str:
    return (
        f"Measured by `make bench`: {document['model']}, weights from "
        f"{document['source_format']}. One lane after the other, the engines of a lane turn by "
        "turn: medians, slowest – fastest in brackets; rates are tokens per second of all "
        "sequences together. The roofline is predicted from this machine's rates, measured between "
        "the turns of the same lane, and takes matrix products at the rate of the activations' "
        "format. On a CPU, steps of quantised lanes round their inputs to 8 bits and multiply "
        "those, which may be faster: a share above 100% is that."
    )


def _conditions(lanes: list[Document]) -> str:
    rows = [
        "| lane | measured | turns | load before | machine | versions | reads | matrix products |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for lane in lanes:
        machine = lane["machine"]
        versions = [
            f"{label} {machine[key]}"
            for key, label in (
                ("python", "Python"),
                ("torch", "torch"),
                ("transformers", "transformers"),
                ("llama_cpp", "llama-cpp-python"),
            )
            if machine[key]
        ]
        reads = (si_label(rate, "B/s") for rate in machine["bandwidth_range"])
        products = (
            f"{name} {si_label(rate, 'FLOP/s')}" for name, rate in machine["flops_per_s"].items()
        )
        cells = [
            lane["lane"], lane["date"], str(lane["repeats"]), f"{machine['load_before']:.2f}",
            f"{machine['device_name']} ({machine['device']}, {machine['threads']} threads)",
            ", ".join(versions),
            f"{si_label(machine['bandwidth_bytes_per_s'], 'B/s')} ({' – '.join(reads)})",
            ", ".join(products),
        ]  # fmt: skip
        rows.append(_row(cells))
    return "\n".join(rows)


def _rates(document: Document) -> str:
    rows = [
        "| workload | lane | First Token | transformers | ratio | llama.cpp | ratio "
        "| roofline | share of it | same tokens |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        _row([result["workload"], lane, *_compared(result), _YES_NO[result["same_tokens"]]])
        for lane, result in _results(document)
    ]
    return "\n".join(rows)


_YES_NO = {True: "yes", False: "no", None: "—"}


def _compared(result: Document) -> list[str]:
    """Ours, each peer with the ratio, the roofline and the share of it."""
    cells = [_spread(result["ours"])]
    for kind in _PEERS:
        name = next((name for name in result["peers"] if name.startswith(kind)), None)
        if name is None:
            cells += ["—", "—"]
            continue
        peer = result["peers"][name]
        variant = name.removeprefix("llama.cpp ") if kind == "llama.cpp" else ""
        cells += [f"{variant} {_spread(peer)}".strip(), f"{peer['ratio']:.2f}x"]
    return [
        *cells,
        significant(result["roofline"]["value"]),
        f"{result['share_of_roofline']:.0%}",
    ]


def _first_token_text(lanes: list[Document]) -> str:
    counts = {lane["first_token"]["prompt_tokens"] for lane in lanes if "first_token" in lane}
    tokens = ", ".join(f"{count:,}" for count in sorted(counts))
    return (
        f"## Time to first token, {tokens} prompt tokens, ms\n\n"
        "Of First Token from handing over the text to the message of its first token, through the "
        "engine that serves: tokenized, queued, prefilled, sampled, turned into text. Of the peers "
        "from the token ids to the likeliest next one. Ratios are their time over ours."
    )


def _first_tokens(lanes: list[Document]) -> str:
    rows = [
        "| lane | First Token | transformers | ratio | llama.cpp | ratio | roofline | share of it "
        "| same token |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for lane in lanes:
        if "first_token" in lane:
            first = lane["first_token"]
            rows.append(_row([lane["lane"], *_compared(first), _YES_NO[first["same_token"]]]))
    return "\n".join(rows)


def _goals(judged: list[Verdict]) -> str:
    rows = ["| goal | value | at least | aim | |", "|---|---|---|---|---|"]
    rows += [
        _row([v.goal, f"{v.value:.2f}", f"{v.least:.2f}", f"{v.aim:.2f}", v.word]) for v in judged
    ]
    return "\n".join(rows)


_MEMORY_TEXT = (
    "*Weights*: bytes as the engine counts them; of llama.cpp, which maps it, the file's. "
    "*Resident*: by how much a process of its own grows when it loads the lane and runs 32 prompt "
    "tokens and 8 steps, without the libraries' code: RSS counts every page, PSS shared ones by "
    "this process's part. *Device*: what torch has allocated on a GPU."
)


def _memory(lanes: list[Document]) -> str:
    rows = [
        "| lane | engine | weights | resident (RSS) | resident (PSS) | device |",
        "|---|---|---|---|---|---|",
    ]
    for lane in lanes:
        for memory in lane["memory"]:
            sizes = (
                "—" if size is None else si_label(size, "B")
                for size in (
                    memory["weight_bytes"],
                    memory["rss_bytes"],
                    memory["pss_bytes"],
                    memory["device_bytes"],
                )
            )
            rows.append(_row([lane["lane"], memory["engine"], *sizes]))
    return "\n".join(rows)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(spread: Document) -> str:
    low, high = significant(spread["low"]), significant(spread["high"])
    return f"{significant(spread['median'])} ({low} – {high})"
