# the row of a token: id, length, and its numbers
curl -s "$SERVICE/api/v1/probes/embeddings" -H 'content-type: application/json' \
  -d '{"text": " king"}'

# king - man + woman, in word vectors
curl -s "$SERVICE/api/v1/words/near" -H 'content-type: application/json' \
  -d '{"plus": ["king", "woman"], "minus": ["man"], "k": 3}'
