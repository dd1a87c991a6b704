"""Generated from `protos/` by `python protos/generate.py`; never edited by hand."""
