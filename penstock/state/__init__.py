"""What operators remember: windows of tuples as rings of columns, interned join codes, indexes, join states."""
