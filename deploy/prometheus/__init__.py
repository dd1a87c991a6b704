"""Scrape config, recording rules and alerts of the service; `slo` writes rules/slo.yml, `local` starts a Prometheus."""
