#!/bin/sh
# Slow to start, or slow to stream? Two measured times (seconds), held against what is typical.
set -eu
curl --silent --show-error --fail "$SERVICE/api/v1/diagnose" \
  --header 'content-type: application/json' \
  --data '{"cell": {"model": "llama-3.1-8b", "hardware": "h100-sxm", "times": "typical",
                    "prompt_tokens": 300, "output_tokens": 200},
           "observations": [{"ttft": 2.5, "itl": 0.007}]}'
