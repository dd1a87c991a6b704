"""Decoders read from Hugging Face checkpoints."""
