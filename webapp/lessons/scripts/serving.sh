# Predicted: 1 and 32 people, who ask again at once, on Llama-3.1-8B and one H100.
for people in 1 32; do
  curl -s "$SERVICE/api/v1/serve" \
    -H 'content-type: application/json' \
    -d '{"model": "llama-3.1-8b", "hardware": "h100-sxm",
         "workload": {"kind": "drawn", "requests": 32,
           "arrivals": {"kind": "closed-loop", "clients": '$people'},
           "prompts": {"kind": "fixed", "tokens": 100},
           "outputs": {"kind": "fixed", "tokens": 64}}}' |
    python3 -c 'import json, sys
found = json.load(sys.stdin)
rate = found["throughput"]["output_tokens_per_s"]["label"]
print(sys.argv[1], "people:", rate, "in all, ITL", found["latency"]["itl"]["p50"], "s")' $people
done
