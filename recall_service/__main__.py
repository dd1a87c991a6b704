"""`python -m recall_service` is `recall-service`."""

from recall_service.cli import app

app()
