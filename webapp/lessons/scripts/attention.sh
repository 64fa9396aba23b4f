# The numbers of one query (token 5, "Paris") of layer 1, head 0.
curl -s "$SERVICE/api/v1/probes/attention-detail" \
  -H 'content-type: application/json' \
  -d '{"text": "The capital of France is Paris.", "layer": 1, "head": 0, "query": 5}'
