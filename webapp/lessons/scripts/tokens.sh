# The tokens of a text by the model that runs here, then GPT-2's merges of a word.
curl -s "$SERVICE/api/v1/tokenize" -H 'content-type: application/json' \
  -d '{"text": "How does inference work?"}'
curl -s "$SERVICE/api/v1/tokenizers/r50k/merges" -H 'content-type: application/json' \
  -d '{"text": "unhappiness"}'
# The same article in all languages.
curl -s "$SERVICE/api/v1/tokenizers/languages?article=1"
