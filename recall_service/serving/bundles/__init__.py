"""What is served: bundles loaded and checked, gone live, and found by name."""
