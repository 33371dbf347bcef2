"""Format ``tfrecord``: TFRecord files of Example protos."""
