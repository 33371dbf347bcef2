"""Format ``parquet``: Apache Parquet tables."""
