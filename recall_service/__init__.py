"""Generative-recommendation recall: gRPC in, exact beam search over a live catalogue, items out."""

__version__ = "0.1.0"
