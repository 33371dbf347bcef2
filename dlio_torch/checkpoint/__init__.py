"""Checkpoints of large models: the job whose state they hold, without the model."""
