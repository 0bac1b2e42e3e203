"""Windows of time [start, end) over the rows of a stream: TUMBLE, HOP and SESSION."""
