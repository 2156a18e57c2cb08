"""Groups of numbers: means and variances by class."""
