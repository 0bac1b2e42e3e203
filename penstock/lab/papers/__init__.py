"""The experiments of the five papers, a room each."""
