"""What the daemon says of itself: statistics, status, metrics, health, logs."""
