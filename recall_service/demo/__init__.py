"""The demo: a synthetic shop, a model trained on it in a minute, and what they must show."""
