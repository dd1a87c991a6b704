"""One module for each thing that goes wrong; every scenario is `async (fleet, *, full) -> FaultReport`."""
