"""Metrics and health over HTTP: `app` answers, `server` listens."""
