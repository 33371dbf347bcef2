"""TFRecord files of Example protos."""
