# The scores after a text, and the likeliest tokens; only the beginning of the answer is shown.
curl -sS "$SERVICE/api/v1/probes/next-token" \
  -H "content-type: application/json" \
  -d '{"text": "I opened the door and saw", "position": 5, "k": 8}' |
  cut -c 1-800
