"""Many queries over the same streams: what each further query costs."""
