"""Where predictions and rejected messages go. A new kind is one new file behind `Sink`."""
