"""The beam-only engine: token ids and constraints in, beams out. Knows no items, no gRPC, no Redis."""
