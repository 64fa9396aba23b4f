"""What is known of models and devices: data with sources, units, and what follows by arithmetic."""
