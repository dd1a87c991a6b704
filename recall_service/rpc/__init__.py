"""The gRPC face of the service: `server.RecallServer` around any `backend.RecallBackend`."""
