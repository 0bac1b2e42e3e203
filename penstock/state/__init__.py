"""The storage of operators: rings of columns, interned key codes, indexes, window lifetimes, and compiled loops."""
