"""The simulator's page: what it shows is what the simulator says, and links are scenarios."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from engine.catalog.units import significant, time_label
from engine.simulator.capacity import capacity
from engine.simulator.deployment import Deployment, Times
from engine.simulator.estimates import estimates
from engine.simulator.features import Features, Speculation
from engine.simulator.layout import Layout
from engine.simulator.run import Batch, run_batch
from webapp.i18n import Language, texts
from webapp.pages.simulator_question import Side, read_simulator_question
from webapp.pages.simulator_side import side_view
from webapp.pages.simulator_view import simulator_answer

ENGLISH = texts(Language.ENGLISH)


def test_the_numbers_are_those_of_the_simulator() -> None:
    side = Side(model="mixtral-8x7b", tensor=2, weights="fp8", batch=16, prompt=700, output=90)
    view = side_view("A", side)
    shown: dict[Times, str] = {"ideal": view.ttft.ideal, "typical": view.ttft.typical}
    for times, words in shown.items():
        deployment = Deployment("mixtral-8x7b", "h100-sxm", Layout(2), "fp8", "bf16", times=times)
        run = run_batch(deployment, Batch(16, 700, 90), Features())
        assert words == time_label(run.ttft)
    assert view.itl is not None
    assert view.itl.typical == time_label(run.tpot or 0)
    assert (
        view.capacity.largest_batch
        == capacity(deployment, Batch(16, 700, 90), Features()).largest_batch
    )


def test_where_memory_holds_more_than_the_model_its_own_limit_is_said(client: TestClient) -> None:
    small = client.get("/fragments/simulator?model=gpt2&prompt=100&output=20").text
    assert "the model itself ends at 1,024" in small
    full = client.get("/fragments/simulator?model=llama-3.1-8b&batch=64&prompt=100&output=20").text
    assert "longest context that fits" in full
    assert "the model itself ends at" not in full


def test_the_bounds_of_the_whole_are_those_of_its_parts() -> None:
    view = side_view("A", Side(prompt=1000, output=256))
    usual = estimates(view.runs["typical"])
    assert usual.tpot is not None
    for shown, start, token in (
        (view.e2e.low, usual.ttft.p10, usual.tpot.p10),
        (view.e2e.high, usual.ttft.p90, usual.tpot.p90),
    ):
        assert shown == time_label(start + 255 * token)
    assert view.throughput.low == significant(256 / usual.e2e.p90)


def test_the_memory_bar_is_whole_and_to_scale() -> None:
    view = side_view("A", Side(batch=4))
    assert [part.name for part in view.memory] == ["weights", "kv", "activations", "free"]
    assert sum(part.width for part in view.memory) == pytest.approx(100)
    crowded = side_view("A", Side(model="llama-3.1-70b"))
    assert not crowded.fits
    assert [part.name for part in crowded.memory] == ["weights", "kv", "activations"]
    assert sum(part.width for part in crowded.memory) == pytest.approx(100)


def test_parts_of_a_typical_step_add_up() -> None:
    view = side_view("A", Side(tensor=4))
    for parts in view.parts.values():
        assert sum(part.width for part in parts) == pytest.approx(100)
        assert {part.name for part in parts if part.width > 0} >= {"operators", "communication"}


def test_curves_pass_through_the_answer() -> None:
    answer = simulator_answer(read_simulator_question({"prompt": "1024"}), ENGLISH)
    view = answer.sides[0]
    by_id = {plot.words.id: plot for plot in answer.curves}
    ttft = {line.name: dict(line.points) for line in by_id["ttft-prompt"].lines}
    assert ttft["typical"][1024] == pytest.approx(view.runs["typical"].ttft)
    assert ttft["ideal"][1024] == pytest.approx(view.runs["ideal"].ttft)


def test_every_operator_is_in_the_table_and_those_with_arithmetic_in_the_picture() -> None:
    answer = simulator_answer(read_simulator_question({"model": "deepseek-v3"}), ENGLISH)
    assert answer.operators is not None
    view = answer.sides[0]
    for chart in (answer.operators.wide, answer.operators.narrow):
        drawn = [mark for mark in chart.marks if mark.phase == "decode"]
        assert len(drawn) == sum(item.operator.flops > 0 for item in view.decode.operators)
        for mark in chart.marks:
            assert chart.frame.x.start <= mark.x <= chart.frame.x.end
    assert len(answer.operators.rows["prefill"]) == len(view.prefill.operators)


def test_a_link_is_a_scenario() -> None:
    query = {
        "model": "qwen3-32b", "hardware": "a100-sxm-80gb", "tensor": "4", "data": "2",
        "weights": "int4-g128", "kv": "fp8", "batch": "33", "prompt": "4321", "output": "17",
        "chunk": "512", "hit": "50", "drafts": "3", "acceptance": "80", "engine": "vllm",
        "activations": "bf16", "stages": "2", "compare": "on", "b_model": "llama-3.1-8b",
    }  # fmt: skip
    question = read_simulator_question(query)
    a, b = question.a, question.b
    assert b is not None
    assert (a.tensor, a.data, a.stages, a.batch, a.prompt, a.output) == (4, 2, 2, 33, 4321, 17)
    assert a.features == Features(512, 0.5, Speculation(3, 0.8))
    assert (b.model, b.hardware, b.tensor) == ("llama-3.1-8b", "a100-sxm-80gb", 4)
    assert (b.prompt, b.output, b.features) == (4321, 17, a.features)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("model=nope", "There is no prediction"),
        ("weights=int3", "There is no prediction"),
        ("hardware=%3Cscript%3E", "There is no prediction"),
        ("experts=on", "no experts to share out"),
        ("tensor=64&model=smollm2-135m", ""),
        ("batch=999999999999999&prompt=-3&output=x", ""),
    ],
)
def test_whatever_a_link_says_the_page_answers(client: TestClient, query: str, said: str) -> None:
    for path in ("/simulator", "/fragments/simulator"):
        answer = client.get(f"{path}?{query}")
        assert answer.status_code == 200
        assert said in answer.text
        assert "<script>" not in answer.text.replace("<script src", "")


def test_the_form_keeps_what_was_asked(client: TestClient) -> None:
    page = client.get("/simulator?prompt=777&kv=fp8&compare=on&b_tensor=8").text
    assert 'value="777"' in page
    assert re.search(r"<option selected>fp8</option>", page)
    assert re.search(r'id="second" class="second">', page)
    assert "A: llama-3.1-8b" in page
    assert "B: llama-3.1-8b" in page


def test_the_scenario_opens_into_formulas_and_says_what_moves_it(client: TestClient) -> None:
    opened = client.get("/fragments/explain?model=llama-3.1-8b&prompt=300&batch=2").text
    assert "memory.kv_bytes_per_token" in opened
    assert "131.1 kB" in opened
    assert "bandwidth_factor" in opened
    assert "What is taken for granted" in opened
    refused = client.get("/fragments/explain?model=nope")
    assert refused.status_code == 200
    assert "There is no prediction" in refused.text


def test_exports_are_the_documents_of_the_api(client: TestClient) -> None:
    query = Side(prompt=300, batch=2, kv="fp8").query
    document = client.get(f"/simulator/scenario.json?{query}").json()
    asked = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "prompt_tokens": 300, "batch": 2,
             "kv": "fp8", "output_tokens": 256}  # fmt: skip
    assert document == client.post("/api/v1/simulate", json=asked).json()
    table = client.get(f"/simulator/scenario.csv?{query}")
    assert table.headers["content-type"].startswith("text/csv")
    lines = table.text.splitlines()
    assert lines[0].startswith("quantity,value,unit")
    assert any(line.startswith(f"ttft,{document['ttft']['value']}") for line in lines)
    assert client.get("/simulator/scenario.json?model=nope").status_code == 422


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("/simulator", "weights", "iq3_xxs"),
        ("/simulator", "tensor", "3"),
        ("/simulator", "hardware", "this-machine"),
        ("/simulator", "model", "nope"),
        ("/serving", "weights", "tf32"),
        ("/serving", "tensor", "6"),
    ],
)
def test_controls_show_what_the_link_asks_for(
    client: TestClient, path: str, name: str, value: str
) -> None:
    page = client.get(f"{path}?{name}={value}").text
    control = re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL)
    assert control
    (chosen,) = re.findall(r"<option[^>]* selected>([^<]*)", control[0])
    found = re.search(r'<option value="([^"]*)" selected', control[0])
    assert (found[1] if found else chosen) == value
