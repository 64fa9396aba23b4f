"""What comes in and goes out, as strict pydantic models."""
