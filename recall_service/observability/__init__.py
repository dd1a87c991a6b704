"""What an on-call engineer sees of the service: metrics, their endpoint, logs. Knows nothing it observes."""
