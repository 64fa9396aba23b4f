# One turn of the loop: the text so far goes in, the likeliest next tokens come out.
# The answer ends with the scores of the whole vocabulary; only its beginning is shown.
curl -sS "$SERVICE/api/v1/probes/next-token" \
  -H "content-type: application/json" \
  -d '{"text": "Once upon a time, there was a", "position": 7, "k": 5}' |
  cut -c 1-600
