"""From a query to an answer: bundles, prompts, the result cache, items. Knows no gRPC and no metrics library."""
