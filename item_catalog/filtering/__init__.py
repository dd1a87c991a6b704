"""What a question leaves of a catalogue: predicates and exclusions -> live and dead items and nodes."""
