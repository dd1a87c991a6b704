"""What runs beside the service: Prometheus rules and Grafana dashboards, and the code that writes the repeated ones."""
