"""DataPipes: shard, interleave, pool, lanes, batch."""
