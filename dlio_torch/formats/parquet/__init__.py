"""Apache Parquet tables."""
