"""The experiments of the JAQPOT paper: budgets and their allocation, Figures 6 to 9."""
