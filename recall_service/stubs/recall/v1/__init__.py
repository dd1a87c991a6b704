"""The protobuf package `recall.v1`: messages in `*_pb2`, client and server classes in `*_pb2_grpc`."""
