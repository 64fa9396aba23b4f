"""The worker's log lines: JSON where no person reads along, tracebacks without local values."""

from __future__ import annotations

import json
import logging
import sys

from engine.inference.log_lines import JsonLines


def record(message, *arguments, exc_info=None):
    return logging.LogRecord("engine", logging.INFO, "", 0, message, arguments, exc_info)


def test_one_object_a_line_with_the_web_process_names():
    line = JsonLines().format(record("%d tokens\nof %s", 3, "cache"))
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["event"] == "3 tokens\nof cache"
    assert fields.keys() == {"event", "level", "logger", "timestamp"}
    assert fields["timestamp"].endswith("+00:00")


def test_a_traceback_says_where_and_holds_no_values():
    prompt = "a secret prompt"
    try:
        raise ValueError(len(prompt))
    except ValueError:
        line = JsonLines().format(record("failed", exc_info=sys.exc_info()))
    assert "test_log_lines" in json.loads(line)["exception"]
    assert "a secret prompt" not in line
