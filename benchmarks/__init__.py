"""One module per question: a table for people, then one JSON line for machines."""
