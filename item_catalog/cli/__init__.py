"""The command line, `item-catalog`."""
