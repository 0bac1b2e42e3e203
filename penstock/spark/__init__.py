"""The pipeline: the engine inside Spark's tasks; sources, shuffle, checkpoints and scale-out are Spark's."""
