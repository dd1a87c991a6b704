"""Embeddings -> SIDs, for who has none: residual k-means with balanced codebooks."""
