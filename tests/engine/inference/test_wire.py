"""Messages survive the way between the processes unchanged; options survive the command line."""

from __future__ import annotations

import pytest

from engine.inference import messages as m
from engine.inference.options import EngineOptions, parse_worker_arguments
from engine.inference.wire import decode, encode
from engine.scheduling.speculation import SpeculationMethod, SpeculationSettings

WINDOW = "paged-window-256-sinks-4"
LANE = m.LaneInfo(
    f"float32/{WINDOW}", "float32", "float32", WINDOW, False, "fp32", "fp32", True, 1, 2, 3, 16,
    window=256, sinks=4,
)  # fmt: skip
SPECULATION = SpeculationSettings(SpeculationMethod.EARLY_EXIT, 3, exit_layer=4)
EXAMPLES = [
    m.Generate("a", prompt="hä 🙂 \ud800", stop=("x", "y"), stop_token_ids=(1, 2), seed=7),
    m.Generate("b", messages=(m.ChatTurn("system", "s"), m.ChatTurn("user", "u\n"))),
    m.Generate("c", prompt="p", speculation=SPECULATION, logit_bias=((5, -1.5), (6, 2.0)), n=3),
    m.Configure("k", max_running=4, policy="fair"),
    m.Probe("p", "attention", {"token_ids": [1, 2], "layer": 0, "head": 1}),
    m.Abort("a"),
    m.Ping(3),
    m.Pong(3),
    m.EngineInfo(
        "name",
        {"num_layers": 2},
        "from",
        "Q4_1",
        False,
        "cpu",
        "A CPU",
        "2.13",
        2,
        "float32",
        (LANE,),
        8192,
        32,
        64,
        1024,
        "fair",
        1.5,
        True,
    ),
    m.Opening("a", "int4-g32-rtn/off"),
    m.Accepted("a", "m", "cpu", "float32", "float32", (1, 2), ("a", " b"), 5, 7, 0.5, 2.0, ("x",)),
    m.Started("a", 0.5, 16, 0, 2),
    m.Drafted("a", (5, 6), ("x", "y"), 1),
    m.Configured("k", 4, 512, "fair", None),
    m.Probed("p", {"kind": "attention", "values": [0.5, None]}),
    m.Queued("a", 1),
    m.Step(
        "a",
        1,
        "prefill",
        "mixed",
        2,
        9,
        0,
        ((0, 8, True, 0), (4, 3, True, 2)),
        0.1,
        2.0,
        {"layers": 1.5},
        8,
        1,
        2,
        64,
        2,
        0,
    ),
    m.Token("a", 0, 5, "x", "x", -0.5, None, 3.0, 0.01, ((5, "x", -0.5), (6, "y", -1.0)), 1),
    m.Preempted("a", 12),
    m.Done("a", "stop", 2, 3, 4.0, (1.0, 2.0), "", "xyz"),
    m.Failed("a", "never_fits", "too long", "max_tokens"),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.type)
def test_round_trip(message):
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_every_kind_of_message_has_an_example():
    kinds = {type(message) for message in EXAMPLES}
    assert kinds == {*m.WORKER_MESSAGES, *m.CLIENT_MESSAGES}


@pytest.mark.parametrize("line", [b"{}", b'{"type":"nothing"}', b'{"type":"ping"}', b"nonsense"])
def test_what_is_no_message_is_an_error(line):
    with pytest.raises(ValueError, match=r"line|malformed|Expecting"):
        decode(line)


def test_options_survive_the_command_line():
    options = EngineOptions(model="a b.gguf", dtypes="float32", kv_tokens=64, calibrate="never")
    assert parse_worker_arguments(["--socket-fd", "7", *options.to_arguments()]) == (7, options)
