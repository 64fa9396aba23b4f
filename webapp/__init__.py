"""The web service: pages, REST, websockets. Everything is joined in ``webapp.app``."""
