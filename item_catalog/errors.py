"""What this package raises when a catalogue, or what one is built from, is not fit to use."""


class CatalogError(Exception):
    """A catalogue or its source is malformed. The message names the file or field, the value and the remedy."""
