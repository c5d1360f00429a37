"""Passes over pipelines and trials: observe, decide, record, page, act."""
