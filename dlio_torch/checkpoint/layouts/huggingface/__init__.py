"""Layout ``safetensors``: the weights as Hugging Face stores them, whole or a part of each rank."""
