"""What pays: every part runs, its verdicts follow its numbers, its section is replaced alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.benchmarks.pays import batching, cache, probes, speculation
from tests.benchmarks.pays.__main__ import main
from tests.benchmarks.pays.outcomes import Answer, Outcome, Timed
from tests.benchmarks.pays.prompts import FREE, PROMPTS, REPETITIVE
from tests.benchmarks.pays.report import PARTS, Section, to_markdown

OPTIONS = ("--quick", "--model", "tiny", "--device", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run of all parts on the tiny model."""
    folder = tmp_path_factory.mktemp("pays")
    threads = torch.get_num_threads()
    main([*OPTIONS, "--output", str(folder)])
    torch.set_num_threads(threads)
    return folder


def sections_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "pays.json").read_text(encoding="utf-8"))


def test_every_part_has_a_section_with_conditions_and_verdicts(made: Path):
    sections = sections_in(made)
    page = (made / "PAYS.md").read_text(encoding="utf-8")
    assert tuple(sections) == PARTS
    assert page == to_markdown(sections)
    assert page.count("A short trial, not a result.") == len(PARTS)
    for part, section in sections.items():
        assert section["part"] == part
        assert f"## {section['title']}" in page
        assert section["verdicts"]
        for verdict in section["verdicts"]:
            assert f"| {verdict['claim']} |" in page
        conditions = section["conditions"]
        assert conditions["model"] in page
        assert conditions["torch"] == torch.__version__
        assert conditions["load_before"] >= 0


def test_all_rows_of_a_table_have_its_columns(made: Path):
    for section in sections_in(made).values():
        for table in section["tables"]:
            assert table["rows"]
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}


def test_the_cache_gives_the_same_tokens_and_every_length_is_of_one_run(made: Path):
    section = sections_in(made)["cache"]
    data = section["data"]
    assert data["float32_parted_at"] == []
    assert len(data["cached_step_seconds"]) == cache.QUICK.new_tokens
    assert [int(n) for n in data["speed_up"]] == list(cache.QUICK.lengths)
    on, off = np.cumsum(data["cached_step_seconds"]), np.cumsum(data["uncached_step_seconds"])
    assert data["uncached_places"] == list(range(cache.QUICK.new_tokens))
    assert data["speed_up"]["16"] == pytest.approx(off[15] / on[15])


def test_all_users_are_served_all_the_time(made: Path):
    data = sections_in(made)["batching"]["data"]
    steps = data["window_steps"]
    assert [window["users"] for window in data["users"]] == list(batching.QUICK.users)
    for window in data["users"]:
        assert window["tokens_of_users"] == [steps] * window["users"]
        assert window["most_unfair"] == 1
        pieces = window["tokens_per_second_of_pieces"]
        assert len(pieces) == batching.QUICK.pieces
        assert min(pieces) <= window["tokens_per_second"] * 1.01
        assert 0 < window["tokens_per_second"] < window["roofline_tokens_per_second"]
        assert window["mean_itl_seconds"] > 0


def test_drafts_leave_the_tokens_as_they_are(made: Path):
    data = sections_in(made)["speculation"]["data"]
    assert len(data["float32"]) == len(data["timed"]) == 3 * 2 - 2  # the tiny model: one exit
    for outcome in data["float32"]:
        assert outcome["same"] == outcome["prompts"] == 2
        assert outcome["tokens_per_step"] >= 1
    early = [outcome for outcome in data["float32"] if outcome["method"].startswith("early")]
    assert all(outcome["drafted"] > 0 for outcome in early)
    for timed in data["timed"]:
        speed_up = sum(timed["plain_seconds"]) / sum(timed["seconds"])
        assert timed["speed_up"] == pytest.approx(speed_up)


def test_a_part_that_is_run_again_replaces_its_section_and_no_other(made: Path, tmp_path: Path):
    before = sections_in(made)
    for name in ("pays.json", "PAYS.md"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    main(["probes", *OPTIONS, "--output", str(tmp_path)])
    after = sections_in(tmp_path)
    assert tuple(after) == PARTS
    assert after["probes"]["data"] != before["probes"]["data"]
    assert {part: after[part] for part in PARTS[:-1]} == {p: before[p] for p in PARTS[:-1]}
    assert (tmp_path / "PAYS.md").read_text(encoding="utf-8") == to_markdown(after)


def test_a_part_alone_makes_a_page_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["cache", *OPTIONS, "--output", str(tmp_path)])
    page = (tmp_path / "PAYS.md").read_text(encoding="utf-8")
    assert list(sections_in(tmp_path)) == ["cache"]
    assert len(re.findall("^## ", page, re.M)) == 1
    assert capsys.readouterr().out.strip() == page.strip()


def test_a_part_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["gpu", *OPTIONS])
    assert "cache, batching, speculation, probes" in capsys.readouterr().err


# ── numbers and verdicts ─────────────────────────────────────────────────────────────────────


def holds(section: Section) -> list[bool | None]:
    return [verdict.holds for verdict in section.verdicts]


def cached_run(seconds: Sequence[float]) -> cache.CachedRun:
    return cache.CachedRun((1, 2), tuple(seconds), tuple(range(len(seconds))))


def test_steps_between_measured_ones_are_interpolated():
    steps = cache.UncachedSteps((0, 4, 7), (1.0, 5.0, 8.0), (0, 4, 7))
    curve = cache.Curve.of(cached_run([1.0] * 8), steps)
    assert curve.uncached.tolist() == np.cumsum(np.arange(1.0, 9.0)).tolist()
    assert curve.speed_up.tolist() == [(n + 1) / 2 for n in range(1, 9)]


@pytest.mark.parametrize(("goal", "tokens"), [(1.0, 1), (2.5, 4), (4.5, 8), (4.6, None)])
def test_a_goal_is_passed_where_the_speed_up_stays_above_it(goal: float, tokens: int | None):
    curve = cache.Curve(np.ones(8).cumsum(), np.arange(1.0, 9.0).cumsum())
    assert curve.passes(goal) == tokens


def test_a_speed_up_that_falls_back_has_not_passed():
    curve = cache.Curve(np.ones(4), np.array([6.0, 2.0, 5.0, 7.0]))
    assert curve.passes(5.0) == 3


def test_the_verdict_on_the_cache_follows_tokens_and_times():
    plan = replace(cache.QUICK, lengths=(2, 4), new_tokens=4)
    run = cached_run([1.0] * 4)
    same = cache.UncachedSteps((0, 3), (9.0, 12.0), (0, 3))
    other = cache.UncachedSteps((0, 3), (2.0, 3.0), (0, 9))
    assert holds(cache.section(plan, (run, same), (run, same))) == [True, True]
    section = cache.section(plan, (run, other), (run, other))
    assert holds(section) == [False, False]
    assert "1 differ, first 3" in section.verdicts[0].because
    assert "first after 3 tokens" in section.remarks[1]
    assert "2 of its 4 steps" in section.how


def served(users: int, tokens: Sequence[Sequence[int]], seconds: float = 1.0) -> batching.Served:
    return batching.Served(
        users, seconds, (1.0, 2.0), tuple(map(tuple, tokens)), (0.1, 0.3), roofline_seconds=0.5
    )


def test_unfairness_is_that_of_the_worst_span():
    window = served(2, [(1, 1), (1, 0), (1, 1), (1, 1)])
    assert window.most_unfair(4) == pytest.approx(4 / 3)
    assert window.most_unfair(2) == 2
    assert window.most_unfair(1) is None


def test_the_verdict_on_batching_follows_rates_and_shares():
    plan = replace(batching.QUICK, piece_steps=2)
    one = served(1, [(1,), (1,)])
    fair, unfair = served(2, [(1, 1), (1, 1)]), served(2, [(1, 1), (0, 2)])
    assert one.rate == 2
    assert one.roofline_rate == 4
    assert holds(batching.section(plan, [one, fair])) == [True, True]
    assert holds(batching.section(plan, [one, unfair])) == [True, False]
    starved = served(2, [(0, 1), (0, 1)])
    section = batching.section(plan, [one, starved])
    assert holds(section) == [False, False]
    assert "somebody got none" in section.verdicts[1].because
    assert section.data["users"][1]["most_unfair"] is None


def answer(token: int = 7, steps: int = 4) -> Answer:
    return Answer((token,) * 9, steps, drafted=8, accepted=4)


def compared(kind: str, seconds: float, token: int = 7) -> Timed:
    outcome = Outcome("ngram", kind, [answer(steps=8)] * 2, [answer(), answer(token)])
    return Timed(outcome, (2.0, 2.0), (seconds, seconds))


def test_the_verdict_on_speculation_follows_tokens_and_times():
    fast, slow = compared(REPETITIVE, 1.0), compared(FREE, 4.0)
    section = speculation.section(speculation.QUICK, [fast.outcome, slow.outcome], [fast, slow])
    assert holds(section) == [True, True]
    assert (fast.speed_up, slow.speed_up) == (2.0, 0.5)
    assert (fast.outcome.acceptance, fast.outcome.tokens_per_step) == (0.5, 2)
    assert "ngram on free text (0.50x)" in section.remarks[0]
    assert "repetitive" not in section.remarks[0]
    assert len(section.remarks) == 1

    other, slower = compared(FREE, 4.0, token=8), compared(REPETITIVE, 3.0)
    section = speculation.section(speculation.QUICK, [fast.outcome, other.outcome], [slower, other])
    assert holds(section) == [False, False]
    assert section.verdicts[0].because == "3 of 4 prompts"
    assert "1 of 4 answers differ" in section.remarks[1]


def test_prompts_of_both_kinds_are_timed():
    timed = speculation._timed_prompts(speculation.FULL)
    assert [PROMPTS[number][0] for number in timed] == [REPETITIVE] * 9 + [FREE] * 9


def test_fifty_prompts_half_of_them_repetitive():
    kinds = [kind for kind, _ in PROMPTS]
    assert (kinds.count(REPETITIVE), kinds.count(FREE)) == (25, 25)
    assert len({text for _, text in PROMPTS}) == 50


def test_exits_are_at_half_and_five_sixths_of_the_layers():
    exits = [s.exit_layer for s in speculation.methods_of(30).values() if s and s.exit_layer]
    assert exits == [15, 25]


@pytest.mark.parametrize(
    ("with_desk", "expected"),
    [
        ((1.0, 1.001, 0.999, 1.0), True),
        ((1.05, 1.051, 1.049, 1.05), False),
        ((1.1, 0.9, 1.1, 0.92), None),
    ],
)
def test_the_verdict_on_probes_needs_less_noise_than_the_bound(
    with_desk: tuple[float, ...], expected: bool | None
):
    section = probes.section(
        probes.QUICK, probes.Cost((1.0,) * 4, with_desk, probes.Calls(("a",), ("a",)))
    )
    assert holds(section) == [True, expected]
    assert ("noise" in section.verdicts[1].because) is (expected is None)


def test_other_calls_with_a_desk_of_probes_are_seen():
    calls = probes.Calls(("step", "sample"), ("step", "hook", "sample"))
    section = probes.section(probes.QUICK, probes.Cost((1.0,) * 4, (1.0,) * 4, calls))
    assert holds(section)[0] is False
