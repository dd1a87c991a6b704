"""The protobuf package `recall`."""
