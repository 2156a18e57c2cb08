"""Where messages come from. A new kind is one new file behind `Source`."""
