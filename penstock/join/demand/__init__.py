"""JIT: gates that hold back rows that no result can use yet, and the decision whether a gate is worth its cost."""
