"""dlio_torch emulates the I/O of deep-learning training, without the model."""

__version__ = "0.1.0"
