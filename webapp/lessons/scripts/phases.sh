#!/bin/sh
# TTFT against the prompt's length and ITL against the answer's, predicted for one GPU.
set -eu
for lengths in "512 64" "4096 64" "512 512"; do
  set -- $lengths
  printf 'prompt %s, answer %s: ' "$1" "$2"
  curl --silent --show-error --fail "$SERVICE/api/v1/estimate" \
    --header 'content-type: application/json' \
    --data "{\"model\": \"llama-3.1-8b\", \"hardware\": \"h100-sxm\", \"times\": \"typical\",
             \"prompt_tokens\": $1, \"output_tokens\": $2}"
  echo
done
