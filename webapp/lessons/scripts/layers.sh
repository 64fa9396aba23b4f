# What each layer would say after the last token of a text (" is", position 11).
curl -s "$SERVICE/api/v1/probes/logit-lens" \
  -H 'content-type: application/json' \
  -d '{"text": "The capital of France is Paris. The capital of Italy is", "position": 11, "k": 3}'
