# What 4,096 tokens of Llama-2-13B take, and how many such requests fit on one H100.
curl -s "$SERVICE/api/v1/simulate" \
  -H 'content-type: application/json' \
  -d '{"model": "llama-2-13b", "hardware": "h100-sxm", "batch": 1,
       "prompt_tokens": 4096, "output_tokens": 1, "chunk_tokens": 2048}' |
  python3 -c 'import json, sys
found = json.load(sys.stdin)
print(found["memory"]["kv_bytes_per_token"]["label"], "a token")
print(found["limits"]["cache_per_request"]["label"], "a request")
print(found["limits"]["largest_batch"]["value"], "requests fit")'
