"""The experiments of the JISC paper: plan changes beside their rivals, Figures 7 to 12."""
