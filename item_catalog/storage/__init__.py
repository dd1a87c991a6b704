"""Catalogues on disk: arrays, a manifest, checksums, published by one rename."""
