"""The experiments of the query-graph paper, in virtual time: Figures 14 to 16."""
