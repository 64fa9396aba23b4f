"""The interface that clients of OpenAI know, over the same engine as the websocket."""
