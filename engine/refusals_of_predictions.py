"""Why a prediction, a sweep, a search, a simulated service or a diagnosis is refused.

Kept apart from ``engine.refusals``, whose sentences travel to every page that runs prompts.
"""

from __future__ import annotations

REFUSED_PREDICTIONS: dict[str, str] = {
    # numbers and names of any question
    "choose_whole": "choose a whole number from {low} to {high}",
    "choose_number": "choose a number from {low} to {high}",
    "choose_share": "choose a number above 0, at most 1",
    "choose_below": "choose a number above 0, below {high}",
    "choose_from_zero": "choose a number of at least 0, below {high}",
    "choose_one": "choose one of {choices}",
    "choices_at_most": "give 1 to {high} choices",
    "no_such_model": (
        "the catalogue has no model of this id; nothing similar is in it. All ids: "
        "python -m engine inspect models, or GET /api/v1/models"
    ),
    "similar_model": (
        "the catalogue has no model of this id; similar ones: {similar}. All ids: "
        "python -m engine inspect models, or GET /api/v1/models"
    ),
    "no_such_hardware": (
        "the catalogue has no hardware of this id; nothing similar is in it. All ids: "
        "python -m engine inspect hardware, or GET /api/v1/hardware"
    ),
    "similar_hardware": (
        "the catalogue has no hardware of this id; similar ones: {similar}. All ids: "
        "python -m engine inspect hardware, or GET /api/v1/hardware"
    ),
    "no_such_engine": "no engine of this name; choose one of {choices}",
    "no_such_format": "no number format of this name; choose one of {choices}",
    # a deployment
    "no_experts": "this model has no experts to share out",
    "no_room_for_cache": (
        "the weights leave no room for a cache on these devices; choose more or larger devices, "
        "or fewer bits"
    ),
    "devices_range": "choose 1 to {high} devices",
    "imbalance_below_mean": "the busiest device does at least the mean: 1",
    "stages_at_most": "choose {high} stages at most: each holds a layer",
    "not_multiplied": "no matrix unit multiplies this format; choose {choices}",
    "sampled_tokens": (
        "batch times output tokens may be {high} at most, as every token is simulated; choose "
        "fewer of either"
    ),
    "cached_tokens": (
        "batch times prompt and output tokens may be {high} at most; choose fewer of either"
    ),
    "twice_the_dense_rate": (
        "{field}: this is exactly twice the dense {format} rate of {device}, {rate} TFLOP/s. Is it "
        "with sparsity? Then give the dense rate, or move it to sparse_tflops; if it is dense, "
        "list {format} in confirmed_dense"
    ),
    "rates_needed": "{field}: give a rate for one of {choices} at least",
    "json_needed": "{field}: paste its JSON",
    "json_too_long": (
        "{field}: give at most {high} characters here, or send the document to the API"
    ),
    "json_bytes": "{field}: give at most {high} bytes",
    "no_json": "{field}: is not JSON in UTF-8 with each key once and finite numbers",
    # a sweep
    "whole_numbers": "{knob} takes whole numbers such as 8, written in digits",
    "numbers": "{knob} takes numbers such as 8, written in digits",
    "steps_of_values": "write first:last:step, or first:last:xfactor, of a number",
    "step_number": "the step is a number, or x and a factor: x2",
    "values_grow": "values grow from a first one above 0",
    "values_end_early": "{knob} ends below its first value; write the smaller one first",
    "values_at_most": "an axis has {high} values at most",
    "axes_at_most": "choose {high} axes at most",
    "knob_twice": "turn each knob on one axis",
    "no_values": "give at least one value",
    "cells_at_most": "a sweep has {high} cells at most; choose fewer values",
    "structures_at_most": (
        "{high} combinations of models, devices and formats at most; choose fewer values"
    ),
    # a search
    "two_tokens_at_least": "choose at least 2: one token has no gap",
    "no_devices": "give at least one device",
    # a diagnosis
    "time_needed": "give the time to the first token, or that between",
    "no_gap": "one token has no gap after it",
    # a service
    "units_at_most": "replicas times data-parallel groups may be {high} at most",
    "cached_blocks": (
        "prefix caches of more than {high} blocks in all are not simulated; choose fewer replicas "
        "or larger blocks"
    ),
    "no_arrivals": "the trace has no arrival times; say how requests arrive",
    "most_below_mean": "the most is below the mean; choose more",
    "no_requests": "the trace has no requests; give one a line",
    "trace_rows": "line {line}: a trace may have {high} requests at most",
    "trace_same_name": "line {line}: two columns have the same name",
    "trace_no_csv": "line {line}: this is no CSV; check its quotes",
    "trace_fields": "line {line}: {found} cells under {known} column names",
    "trace_no_json": "line {line}: this is no JSON object",
    "trace_one_object": "line {line}: each line is one JSON object",
    "trace_no_prompts": "line {line}: no column of prompt lengths; name one {usual}",
    "trace_no_outputs": "line {line}: no column of output lengths; name one {usual}",
    "trace_no_value": "line {line}, column {column}: there is no value",
    "trace_whole": "line {line}, column {column}: write a whole number from {low} to {high}",
    "trace_time": "line {line}, column {column}: write a number of seconds, or a date and time",
    "trace_keys": "line {line}, column {column}: write a list of at most {high} whole numbers",
    "trace_from_zero": "line {line}, column {column}: write whole numbers from 0 on",
    "requests_at_most": "the trace has more than {high} requests; choose how many to take",
    "run_too_long": (
        "this run would take too long; choose fewer requests, shorter texts or a larger token "
        "budget"
    ),
    "run_too_long_for_the_page": (
        "this run is too long for the page; choose fewer requests or shorter answers"
    ),
    "takes_too_long": "this takes more than {seconds} s; ask for less",
    "simulation_too_long": (
        "the simulation takes more than {seconds} s; choose fewer output tokens"
    ),
    "simulations_at_once": "too many simulations came at once; try again in a moment",
}
"""English sentences by code; ``{name}`` is filled in with the value of that name."""
