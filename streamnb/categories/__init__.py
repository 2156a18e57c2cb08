"""Groups of categories: values of a few kinds, learned as they come."""
