"""What was asked and what was answered, kept in files: written beside the service, read by its tools."""
