"""Layout ``dcp``: saves and loads by ``torch.distributed.checkpoint`` of the state that FSDP2 shards."""
