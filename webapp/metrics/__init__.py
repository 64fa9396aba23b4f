"""What operators watch, in Prometheus' form."""
