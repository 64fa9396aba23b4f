"""The two directions of what the web process and the worker say to each other. Torch-free."""
