"""The dashboard: `rows` says what is on it, `dashboard` turns that into Grafana's JSON, `render` into a picture."""
