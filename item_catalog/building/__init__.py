"""Rows in any order -> a Catalog, in sorts that stay in the processor's cache."""
