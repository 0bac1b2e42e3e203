"""JIT: gates that hold back rows no result can use yet, and the test whether a gate pays."""
