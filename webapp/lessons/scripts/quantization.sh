curl -s "$SERVICE/api/v1/probes/fidelity" \
  -H "content-type: application/json" \
  -d '{"text": "The capital of France is Paris. It lies on the Seine, and its river",
       "weights": "int8-channel"}'
