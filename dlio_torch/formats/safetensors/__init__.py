"""Format ``safetensors``: named tensors in one file."""
