"""Looking inside the model: what it computes on a text, with and without one of its parts."""
