"""The documentation site: `python -m scripts.website` builds it from the guides and docstrings."""
