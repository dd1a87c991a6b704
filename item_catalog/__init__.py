"""What items exist, their semantic IDs, and which prefixes are legal. Knows no model, no service and no network."""
