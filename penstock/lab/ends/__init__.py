"""Lab `ends`: a join whose streams are topics of Kafka, compared with files and with Spark's own join."""
