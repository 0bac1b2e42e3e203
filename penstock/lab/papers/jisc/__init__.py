"""The experiments of the JISC paper: plan changes by JISC and by its rivals, Figures 7 to 12."""
