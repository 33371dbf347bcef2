"""Files with the tensors of a described job, which several layouts save by their libraries."""
