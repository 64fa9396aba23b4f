"""The pages a reader sees: full pages and the fragments that htmx swaps in."""
