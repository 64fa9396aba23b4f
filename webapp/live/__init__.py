"""The websocket: parse and admit what comes in, stream what the engine tells."""
