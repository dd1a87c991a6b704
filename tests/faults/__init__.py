"""Real server processes, a real Redis, and everything that goes wrong between them; no answer may be wrong for it."""
