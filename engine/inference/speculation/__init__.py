"""Who drafts, and how drafts are verified. What a draft is: ``engine.scheduling.speculation``."""
