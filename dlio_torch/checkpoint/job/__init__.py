"""The job that is checkpointed, as plain data: parameters of the model, ranks, and the tensors that each rank holds."""
