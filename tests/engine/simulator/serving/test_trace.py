"""Traces as people have them; errors name line and column."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.simulator.serving.trace import TraceRow, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [0, 7]}
"""


def test_columns_of_the_azure_trace():
    trace = read_trace(AZURE)
    assert [row[1:3] for row in trace.rows] == [(374, 44), (396, 109)]
    first, second = (row.arrival for row in trace.rows)
    assert first is not None
    assert second is not None
    assert second - first == pytest.approx(4.314579, abs=1e-5)


def test_lines_of_the_mooncake_trace_count_milliseconds():
    trace = read_trace(MOONCAKE)
    assert trace.rows == (TraceRow(0.0, 1030, 5, (0, 1, 2)), TraceRow(3.0, 600, 9, (0, 7)))
    assert trace.prefix_block == 512
    assert trace.has_prefixes


@pytest.mark.parametrize(
    ("header", "arrival"),
    [
        ("arrival_s,prompt_tokens,output_tokens", 1.5),
        ("arrived_at,num_prefill_tokens,num_decode_tokens", 1.5),
        ("Timestamp,Request tokens,Response tokens", 1.5),
        ("timestamp_ms,input_tokens,output_len", 0.0015),
    ],
)
def test_other_known_names(header, arrival):
    assert read_trace(f"{header}\n1.5,20,3\n").rows == (TraceRow(arrival, 20, 3),)


def test_lengths_alone_are_a_trace_without_times():
    trace = read_trace("prompt_tokens,output_tokens\n5,6\n7,8\n")
    assert not trace.has_times
    assert trace.rows == (TraceRow(None, 5, 6), TraceRow(None, 7, 8))


def test_rows_are_sorted_by_arrival_and_ties_stay():
    trace = read_trace("arrival_s,prompt_tokens,output_tokens\n2,1,1\n0,2,1\n2,3,1\n")
    assert [row.prompt_tokens for row in trace.rows] == [2, 1, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no requests"),
        ("prompt_tokens,output_tokens\n", "no requests"),
        ("a,b\n1,2\n", "line 2: no column of prompt lengths"),
        ("prompt_tokens,b\n1,2\n", "line 2: no column of output lengths"),
        ("prompt_tokens,output_tokens\n1,2\n1\n", "line 3: 1 cells under 2"),
        ("prompt_tokens,output_tokens\n1,2\nx,2\n", "line 3, column prompt_tokens"),
        ("prompt_tokens,output_tokens\n1,0\n", "line 2, column output_tokens"),
        ("prompt_tokens,output_tokens\n1,99999999999999\n", "line 2, column output_tokens"),
        ("prompt_tokens,Prompt_Tokens\n1,1\n", "line 1: two columns"),
        ("arrival_s,prompt_tokens,output_tokens\nsoon,1,1\n", "line 2, column arrival_s"),
        ("arrival_s,prompt_tokens,output_tokens\ninf,1,1\n", "line 2, column arrival_s"),
        ('prompt_tokens,output_tokens\n"1,2\n', "no CSV"),
        ('{"prompt_tokens": 1, "output_tokens": 1}\n[]\n', "line 2: each line"),
        ('{"prompt_tokens": 1, "output_tokens": 1}\n{\n', "line 2: this is no JSON"),
        ('{"prompt_tokens": 1, "output_tokens": 1}\n{"prompt_tokens": 1}\n', "line 2, column out"),
        ('{"prompt_tokens": true, "output_tokens": 1}\n', "line 1, column prompt_tokens"),
        ('{"prompt_tokens": 1.5, "output_tokens": 1}\n', "line 1, column prompt_tokens"),
        (
            '{"arrival_s": 1' + "0" * 400 + ', "prompt_tokens": 1, "output_tokens": 1}\n',
            "line 1, column arrival_s",
        ),
        (
            '{"prompt_tokens": 1, "output_tokens": 1, "hash_ids": ["x"]}\n',
            "line 1, column hash_ids",
        ),
        ('{"prompt_tokens": 1, "output_tokens": 1, "hash_ids": 5}\n', "line 1, column hash_ids"),
    ],
)
def test_errors_name_line_and_column(text, words):
    with pytest.raises(InvalidRequest) as refused:
        read_trace(text)
    assert refused.value.field == "trace"
    assert words in refused.value.message


def test_a_refusal_never_repeats_the_text():
    with pytest.raises(InvalidRequest) as refused:
        read_trace("prompt_tokens,output_tokens\n<script>,2\n")
    assert "script" not in refused.value.message


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(1, 9999), st.integers(1, 9999)), min_size=1
    )
)
def test_csv_and_json_lines_say_the_same(rows):
    names = ("timestamp_ms", "prompt_tokens", "output_tokens")
    as_csv = "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)])
    as_json = "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    assert read_trace(as_csv) == read_trace(as_json)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with suppress(InvalidRequest):
        assert read_trace(text).rows


def test_times_of_other_zones_are_those_of_the_same_clock():
    trace = read_trace(
        "arrival,prompt_tokens,output_tokens\n"
        "2023-10-29T02:59:59+02:00,1,1\n"
        "2023-10-29T02:00:00+01:00,2,1\n"
        "2023-10-29 01:00:01.2500000,3,1\n"
    )
    assert [row[:2] for row in trace.rows] == [
        (1698541199.0, 1), (1698541200.0, 2), (1698541201.25, 3),
    ]  # fmt: skip
