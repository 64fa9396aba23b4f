"""Where keys and values of past positions are kept."""
