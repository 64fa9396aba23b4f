"""The real engine: weights, tokenizer, torch model, executor, and the process that runs them."""
