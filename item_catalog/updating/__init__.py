"""Catalogues that change: batches of updates, the log that makes them last, stores of versions, differences."""
