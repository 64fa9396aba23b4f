"""Tests of the web process. Its log is quiet here unless a test asks for it."""

import logging

import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
