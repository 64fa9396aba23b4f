"""The claims of the article, each with a check that measures or computes it now."""
