"""The twelve lessons: their texts, tasks, claims and code, and what is known about all of them."""
