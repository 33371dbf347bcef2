"""Layout ``megatron_deepspeed``: the files of Megatron-DeepSpeed, one or more of each rank in a folder of all ranks."""
