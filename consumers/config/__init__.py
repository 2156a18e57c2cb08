"""`config.yaml` as frozen, checked settings: one file a theme, put together in `settings`."""
