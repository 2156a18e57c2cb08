"""Groups of flags: true or false, or not known."""
