"""The experiments of the five papers, one package for each paper."""
