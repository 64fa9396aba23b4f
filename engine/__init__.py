"""The engine of First Token: a real small model, and a roofline simulator of any model."""
