"""What the widgets say about a run, over a websocket whose other side a test plays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.conftest import PHONE, OpenPage, run, start
from tests.webapp.live_server import LiveApp

pytestmark = pytest.mark.browser

Event = dict[str, Any]
READY: Event = {"type": "hello", "engine": {"state": "ready"}}


def accepted(pieces: Sequence[str] = "abcd", **other: Any) -> Event:
    return {
        "type": "accepted", "model": "played", "device": "cpu", "dtype": "float32",
        "prompt_tokens": len(pieces), "prompt_token_ids": list(range(len(pieces))),
        "prompt_pieces": list(pieces), "max_tokens": 400, "seed": 7, "tokenize_ms": 0.5,
        "notices": [], **other,
    }  # fmt: skip


def step(number: int, start_ms: float, time_ms: float, **other: Any) -> Event:
    """A decode step alone in its batch, 1 FLOP a byte; ``number`` counts from 0."""
    tokens = other.get("own_kv_tokens", 4 + number)
    return {
        "type": "step", "step": number, "phase": "decode", "step_phase": "decode", "batch": 1,
        "tokens": 1, "start_ms": start_ms, "time_ms": time_ms, "time": time_ms / 1e3,
        "stages_ms": {}, "predicted_ms": None, "predicted_time": None, "flops": 1e8, "bytes": 1e8,
        "intensity": 1.0, "bound": "memory", "own_kv_tokens": tokens, "own_kv_blocks": 1,
        "kv_blocks": 1, "kv_bytes": tokens * 512, "kv_blocks_used": 1, "kv_blocks_total": 128,
        "kv_block_tokens": 16, "running": 1, "waiting": 0, "pauses_ms": {},
        "steps_dropped": 0, **other,
    }  # fmt: skip


def prefill(number: int, start_ms: float, time_ms: float, **other: Any) -> Event:
    return step(
        number, start_ms, time_ms,
        **{"phase": "prefill", "step_phase": "prefill", "tokens": 4, **other},
    )  # fmt: skip


def token(index: int, time_ms: float, itl_ms: float | None) -> Event:
    return {
        "type": "token", "index": index, "id": 65, "text": "a", "piece": "a", "logprob": -0.5,
        "itl_ms": itl_ms, "time_ms": time_ms, "detokenize_ms": 0.01,
    }  # fmt: skip


def done(count: int, ttft_ms: float = 11.0) -> Event:
    return {
        "type": "done", "finish_reason": "length", "ttft_ms": ttft_ms, "predicted_ttft_ms": None,
        "usage": {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count},
        "itl_ms": [], "predicted_itl_ms": None, "tail": "", "text": "a" * count,
        "steps_dropped": 0,
    }  # fmt: skip


def with_tokens(steps: Sequence[Event]) -> list[Event]:
    """A whole run: every step gives a token, except prefill steps that others follow."""
    events: list[Event] = [accepted()]
    first, last = None, None
    count = 0
    for this, following in zip(steps, [*steps[1:], None], strict=True):
        events.append(this)
        if following and following["phase"] == "prefill":
            continue
        end = this["start_ms"] + this["time_ms"]
        events.append(token(count, end, None if last is None else end - last))
        first, last = first or end, end
        count += 1
    return [*events, done(count, first or 0.0)]


Play = Callable[..., Page]


@pytest.fixture
def play(fake_server: LiveApp, open_page: OpenPage) -> Play:
    """``play(events, path="/", **context)``: a page whose runs are answered with ``events``."""

    def open_played(events: Sequence[Event], path: str = "/", **options: Any) -> Page:
        page = open_page(fake_server, "about:blank", **options)

        def answer(route: WebSocketRoute, message: str | bytes) -> None:
            request = json.loads(message)
            if request["type"] != "generate":
                return
            for event in events:
                route.send(json.dumps({"request_id": request["request_id"], **event}))

        def connect(route: WebSocketRoute) -> None:
            route.on_message(lambda message: answer(route, message))
            route.send(json.dumps(READY))

        page.route_web_socket("**/ws/generate", connect)
        page.goto(path)
        return page

    return open_played


def test_precision_can_be_changed_after_a_run(fake_server: LiveApp, open_page: OpenPage) -> None:
    page = open_page(fake_server)
    marks = page.locator("#roofline svg.wide .measured .mark")
    roof = page.locator("#roofline > .roof")
    for dtype in ("float32", "bfloat16", "float32"):
        page.get_by_role("radio", name=dtype).check(force=True)
        expect(roof).to_have_attribute("data-dtype", dtype)
        assert run(page, "eight letters", tokens=8) == "done"
        expect(marks.first).to_be_attached()
        expect(page.locator("#roofline [data-note]")).not_to_contain_text("not drawn")
    for dtype in ("bfloat16", "float32"):
        page.get_by_role("radio", name=dtype).check(force=True)
        expect(roof).to_have_attribute("data-dtype", dtype)
    expect(marks.first).to_be_attached()


def steps_in_a_row(count: int, time_ms: float, pause_ms: float = 0.0, **other: Any) -> list[Event]:
    """A prefill of 10 ms and ``count`` decode steps, ``pause_ms`` between each two steps."""
    first = prefill(0, 1.0, 10.0)
    start_ms = 11.0 + pause_ms
    rest = [
        step(i + 1, start_ms + i * (time_ms + pause_ms), time_ms, **other) for i in range(count)
    ]
    return [first, *rest]


def test_time_between_steps_is_told_with_its_causes_and_drawn(play: Play) -> None:
    causes = {"lane": 4.0, "prefill": 1.5, "preparing": 0.4, "engine": 0.1}
    page = play(with_tokens(steps_in_a_row(20, 8.0, pause_ms=6.0, pauses_ms=causes)))
    assert run(page, "abcd") == "done"
    company = page.locator("[data-company]")
    expect(company).to_contain_text("alone in each of its own steps")
    expect(company).to_contain_text("In 20 pauses between its steps, 120\u00a0ms in all")
    expect(company).to_contain_text(
        "steps of other forms of the model 80.0\u00a0ms, prefill of other prompts 30.0\u00a0ms, "
        "preparing another form of the model 8.00\u00a0ms, "
        "and the engine itself stood still 2.00\u00a0ms."
    )
    expect(page.locator("#itl [data-why]")).to_contain_text("42% of the time between tokens")
    assert page.locator(".layer-pauses .wait").count() == 20
    assert page.locator(".layer-pauses .wait").first.get_attribute("width") == "6"


def test_a_pause_without_a_known_cause_is_given_none(play: Play) -> None:
    page = play(with_tokens(steps_in_a_row(3, 8.0, pause_ms=20.0)))
    run(page, "abcd")
    expect(page.locator("[data-company]")).to_contain_text("the engine did other work.")


def test_what_is_computed_again_is_no_prefill(play: Play) -> None:
    again = {"phase": "recompute", "step_phase": "recompute", "tokens": 9}
    page = play(with_tokens(steps_in_a_row(5, 8.0, **again)))
    assert run(page, "abcd") == "done"
    expect(page.locator("#strip [data-decode]")).to_contain_text("5 recompute steps")
    assert page.locator(".block.prefill").count() == 1
    assert page.locator(".block.recompute").count() == 5
    colours = page.evaluate(
        """() => [".block.prefill", ".block.recompute"].map(
            (one) => getComputedStyle(document.querySelector(one)).fill)"""
    )
    assert colours[0] != colours[1]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            [{"ahead": 2, "stage": "waiting"}],
            "Waiting for int4-g32-awq: 2 other forms of the model are prepared first.",
        ),
        (
            [{"ahead": 1, "stage": "waiting"}, {"share": 0.34, "part": "layers.1"}],
            "Preparing int4-g32-awq: quantizing layer 2 of 2, 34% done.",
        ),
        (
            [{"stage": "loading", "share": 0.5, "part": "lm_head"}],
            "Preparing int4-g32-awq: loading the matrix that scores the vocabulary, 50% done.",
        ),
    ],
)
def test_a_run_that_waits_for_its_lane_hears_how_far_it_is(
    play: Play, told: list[Event], said: str
) -> None:
    named = {"type": "opening", "lane": "int4-g32-awq", "part": "layers.0"}
    page = play([{**named, "ahead": 0, "stage": "quantizing", "share": 0.0, **t} for t in told])
    page.locator("#prompt").fill("abcd")
    page.locator("#go").click()
    expect(page.locator("#status")).to_have_text(said)
    expect(page.locator("#announce")).to_have_text(said)
    expect(page.locator("#strip [data-prefill]")).to_contain_text("waiting")


def test_a_refusal_is_told_in_the_language_of_the_page(play: Play) -> None:
    refusal = {
        "type": "error", "code": "invalid_request", "message": "n must be …", "field": None,
        "reason": "integer_range", "values": {"name": "n", "low": 1, "high": 1600},
    }  # fmt: skip
    page = play([refusal], path="/?lang=zh-Hans")
    page.locator("#prompt").fill("abcd")
    page.locator("#go").click()
    expect(page.locator("#status")).to_have_text("被拒绝：n 须为 1 到 1,600 之间的整数。")


def test_steps_that_follow_at_once_have_no_pause(play: Play) -> None:
    steps = steps_in_a_row(12, 8.0, pause_ms=0.4)
    lost = step(13, steps[-1]["start_ms"] + 90.0, 8.0, steps_dropped=9)
    page = play(with_tokens([*steps, lost]))
    run(page, "abcd")
    expect(page.locator("[data-company]")).not_to_contain_text("pause")
    assert page.locator(".layer-pauses .wait").count() == 0


def test_steps_are_counted_in_one_way(play: Play) -> None:
    """A mixed step is a decode step of this prompt, in the strip as on the roofline."""
    steps = steps_in_a_row(9, 8.0)
    steps[4] |= {"step_phase": "mixed", "batch": 2, "tokens": 9}
    for shared in steps[5:8]:
        shared["batch"] = 2
    page = play(with_tokens(steps))
    run(page, "abcd")
    expect(page.locator("#strip [data-decode]")).to_contain_text("9 decode steps")
    labels = page.locator("svg.roofline.wide [data-labels]")
    expect(labels).to_contain_text("9 decode steps, 1 of them mixed")
    expect(page.locator("#itl [data-why]")).to_contain_text("4 of 9 decode steps were shared")
    expect(page.locator("[data-company]")).to_contain_text("4 of 10 steps were shared")


def test_every_number_has_its_kind(play: Play) -> None:
    steps = steps_in_a_row(3, 8.0, predicted_ms=6.0, predicted_time=0.006)
    page = play(with_tokens(steps))
    run(page, "abcd")
    titles = "nodes => nodes.map(node => node.textContent)"
    marks = page.locator("svg.roofline.wide .mark title").evaluate_all(titles)
    assert {text.split()[-1] for text in marks} == {"measured", "predicted"}
    page.focus("#strip-bar")
    page.keyboard.press("End")
    readout = page.locator("#strip [data-readout]")
    expect(readout).to_contain_text("measured 8.00\u00a0ms, begun at 27.0\u00a0ms")
    expect(readout).to_contain_text("predicted 6.00\u00a0ms")


@pytest.mark.parametrize(("count", "thin"), [(12, False), (399, True)])
def test_thin_predictions_share_one_outline(play: Play, count: int, thin: bool) -> None:
    """Outlines side by side, a pixel each, would look filled, and filled means measured."""
    page = play(with_tokens(steps_in_a_row(count, 8.0, predicted_ms=6.0, predicted_time=0.006)))
    run(page, "abcd")
    expect(page.locator(".layer-ghost")).to_be_visible(visible=not thin)
    envelope = page.locator(".layer-envelope rect")
    expect(envelope).to_be_visible(visible=thin)
    assert float(envelope.get_attribute("width") or 0) == pytest.approx(6.0 * count)


def test_axis_labels_keep_apart(play: Play) -> None:
    page = play(with_tokens([prefill(0, 1.0, 26_600.0), step(1, 26_601.0, 500.0)]))
    run(page, "abcd")
    boxes = "nodes => nodes.map(node => node.getBoundingClientRect())"
    zero, first, end = page.locator("#strip .axis span").evaluate_all(boxes)
    assert first["left"] - zero["right"] >= 16
    assert end["left"] - first["right"] >= 16


def test_keys_are_not_offered_to_fingers(play: Play) -> None:
    hint = "Arrow keys go from step to step."
    finger = play([accepted()], viewport=PHONE, has_touch=True, is_mobile=True)
    start(finger, "abcd")
    expect(finger.locator("#strip-help")).to_be_visible()
    expect(finger.get_by_text(hint)).to_be_hidden()
    mouse = play([accepted()])
    start(mouse, "abcd")
    expect(mouse.get_by_text(hint)).to_be_visible()


def test_a_long_prefill_is_told_step_by_step(play: Play) -> None:
    pieces = ["a"] * 6554
    chunk = prefill(0, 1.0, 300.0, own_kv_tokens=2048, tokens=2048)
    page = play([accepted(pieces), chunk])
    start(page, "a" * 6554)
    expect(page.locator("#status")).to_have_text("Prefill: token 2,048 of 6,554…")
    page = play([accepted(pieces), {"type": "queued", "position": 1}])
    start(page, "a" * 6554)
    expect(page.locator("#status")).to_have_text("Waiting: yours is next.")


def test_the_template_is_not_counted_as_the_readers_text(play: Play) -> None:
    frame = ["<|im_start|>", "user", "\n"]
    own = ["Hi", " ", "<F0><9F>", "<A6>", "<8A>"]
    page = play([accepted([*frame, *own, "<|im_end|>", "\n"])])
    start(page, "Hi 🦊")
    page.click("#stage-tokens")
    details = page.locator("#panel-tokens [data-facts]")
    expect(details).to_contain_text("4 characters became 5 tokens: 0.80 characters a token.")
    expect(details).to_contain_text("The chat template adds 5 more, 10 in all")


def test_one_is_not_many(play: Play) -> None:
    page = play(
        [accepted(["a"]), prefill(0, 1.0, 5.0, own_kv_tokens=1), token(0, 6.0, None), done(1)]
    )
    page.get_by_role("radio", name="a beginning").check(force=True)
    run(page, "a")
    page.click("#stage-tokens")
    expect(page.locator("#panel-tokens")).to_contain_text(
        "1 character became 1 token: 1.00 characters a token."
    )
    expect(page.locator("#cache [data-sentence]")).to_contain_text("1 token of the prompt")
    expect(page.locator("#strip [data-prefill]")).to_contain_text("1 token at once")


def test_vectors_are_float32_and_their_table_is_not(play: Play) -> None:
    page = play([accepted(dtype="bfloat16")])
    start(page, "abcd")
    page.click("#stage-vectors")
    facts = page.locator("#panel-vectors [data-facts]")
    expect(facts).to_contain_text("4 × 64 numbers × 4 bytes")
    expect(facts).to_contain_text("65.5\u00a0kB in bfloat16")
    expect(facts).to_contain_text("between the layers, the vectors are kept in float32")


def test_greedy_has_no_seed(play: Play) -> None:
    page = play(with_tokens(steps_in_a_row(3, 8.0)))
    page.fill("#temperature", "0")
    run(page, "abcd")
    status = page.locator("#status")
    expect(status).to_contain_text("no seed; float32, on the CPU.")
    page.fill("#temperature", "1")
    run(page, "abcd")
    expect(status).to_contain_text("Seed 7, float32, on the CPU.")


def test_ratios_keep_a_decimal(play: Play) -> None:
    page = play(with_tokens(steps_in_a_row(3, 9.0, predicted_ms=3.0, predicted_time=0.003)))
    run(page, "abcd")
    expect(page.locator("#itl [data-predicted]")).to_contain_text("measured is 3.0 times that")


def test_the_table_never_opens_on_a_rest(play: Play) -> None:
    page = play(with_tokens(steps_in_a_row(80, 8.0)))
    run(page, "abcd")
    page.locator("#steps summary").click()
    rows, told = page.locator("#steps tbody tr"), page.locator("#steps [data-range]")
    expect(told).to_have_text("steps 1 to 40 of 81")
    for text in ("steps 41 to 80 of 81", "steps 42 to 81 of 81"):
        page.get_by_role("button", name="Later").click()
        expect(told).to_have_text(text)
        expect(rows).to_have_count(40)
    expect(page.get_by_role("button", name="Later")).to_be_disabled()


def test_a_refusal_goes_when_the_form_is_wrong(play: Play) -> None:
    refusal = {"type": "error", "code": "never_fits", "message": "", "field": "/max_tokens"}
    page = play([refusal])
    run(page, "abcd")
    status = page.locator("#status")
    expect(status).to_contain_text("larger than the model's context of 2,048 tokens")
    page.fill("#max_tokens", "2048")
    page.click("#go")
    expect(status).to_have_text("Nothing was sent: a value in the form is not possible.")
    page.fill("#max_tokens", "2047")
    page.click("#go")
    expect(status).to_contain_text("larger than the model's context")


def test_a_cache_goes_with_its_process(play: Play) -> None:
    killed = {"type": "error", "code": "engine_restarted", "message": "", "field": None}
    page = play([accepted(), prefill(0, 1.0, 5.0), token(0, 6.0, None), killed])
    run(page, "abcd")
    sentence = page.locator("#cache [data-sentence]")
    expect(sentence).to_contain_text("The engine's process ended, and its whole cache with it.")
    expect(sentence).not_to_contain_text("went back to the pool")


def speculative_run() -> list[Event]:
    """A prefill, then two steps of 30 ms; the first has two drafts accepted, the second none."""
    drafted: Event = {"type": "drafted", "draft_token_ids": [65] * 3, "draft_pieces": ["a"] * 3}
    last = done(5) | {"predicted_itl_ms": 12.5}
    return [
        accepted(), prefill(0, 1.0, 10.0), token(0, 11.0, None),
        step(1, 11.0, 30.0), {**drafted, "accepted": 2},
        token(1, 41.0, 30.0), token(2, 41.0, 0.0), token(3, 41.0, 0.0),
        step(2, 41.0, 30.0), {**drafted, "accepted": 0}, token(4, 71.0, 30.0), last,
    ]  # fmt: skip


def test_drafts_are_told_by_the_mean(play: Play) -> None:
    page = play(speculative_run())
    run(page, "abcd")
    card = page.locator("#itl")
    expect(card.locator(".big")).to_have_text("15.0ms")
    expect(card.locator("[data-caption]")).to_have_text(", mean of 4 gaps")
    expect(card.locator("[data-predicted]")).to_contain_text("predicted 12.5\u00a0ms")
    expect(card.locator("[data-predicted]")).to_contain_text("measured is 20% more")
    expect(card.locator("[data-why]")).to_contain_text("to check the drafts")
    expect(card.locator("svg.rug title")).to_contain_text("the mean is 15.0\u00a0ms")
    expect(page.locator("#announce")).to_contain_text("Mean time between tokens: 15.0")
    expect(page.locator("[name=here_itl_ms]")).to_have_value("15")


def test_a_cache_that_is_off_keeps_nothing(play: Play) -> None:
    lane = {"name": "float32/off", "kv_cache": "off", "kv_bytes_per_token": 0}
    events = with_tokens(steps_in_a_row(3, 8.0, kv_bytes=0, own_kv_tokens=0))
    page = play([accepted(lane=lane), *events[1:]])
    run(page, "abcd")
    sentence = page.locator("#cache [data-sentence]")
    expect(sentence).to_have_text(
        "The KV cache is off: nothing is kept, and every step computes the whole text again."
    )
    expect(page.locator("#cache [data-cells]")).to_be_hidden()
    expect(page.locator("#cache [data-count]")).to_be_empty()
    why = page.locator("#itl [data-why]")
    expect(why).to_contain_text("With the KV cache off, each step reads all weights")
    expect(why).not_to_contain_text("0 B")


def test_stages_say_what_was_measured_and_what_counted(play: Play) -> None:
    steps = steps_in_a_row(3, 8.0)
    steps[0]["stages_ms"] = {"embed": 0.1, "layers": 9.0}
    page = play(with_tokens(steps))
    run(page, "abcd")
    for stage in ("tokens", "vectors", "layers", "token"):
        expect(page.locator(f"#stage-{stage} [data-kind]")).to_be_visible()
    expect(page.locator("#stage-choices [data-kind]")).to_be_hidden()
    page.click("#stage-layers")
    kinds = page.locator(".cost tbody .kind").all_inner_texts()
    assert (
        kinds
        == ["", "counted", "counted", "counted", "measured", "measured"]
        + ["counted ÷ measured"] * 2
    )
