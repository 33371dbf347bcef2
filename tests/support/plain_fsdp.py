"""A training script that saves twice with FSDP2 and torch.distributed.checkpoint, without anything of dlio_torch.

``python plain_fsdp.py <folder> <hidden> <layers> <ffn> <vocabulary>`` as a rank of torchrun.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Attention(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))


class FeedForward(nn.Module):
    def __init__(self, hidden: int, wide: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, wide, bias=False)
        self.w2 = nn.Linear(wide, hidden, bias=False)
        self.w3 = nn.Linear(hidden, wide, bias=False)


class Layer(nn.Module):
    def __init__(self, hidden: int, wide: int) -> None:
        super().__init__()
        self.attention = Attention(hidden)
        self.feed_forward = FeedForward(hidden, wide)
        self.attention_norm = nn.RMSNorm(hidden)
        self.ffn_norm = nn.RMSNorm(hidden)


class Transformer(nn.Module):
    def __init__(self, hidden: int, layers: int, wide: int, vocabulary: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, wide) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.output = nn.Linear(hidden, vocabulary, bias=False)


def main(folder: Path, hidden: int, layers: int, wide: int, vocabulary: int) -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Transformer(hidden, layers, wide, vocabulary)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in (1, 2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        weights, state = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optim": state}, checkpoint_id=folder / f"step-{step}")
    dist.destroy_process_group()


main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
# torch keeps the destroyed process group in a cache of DTensor. Its Gloo thread aborts the process now and then if
# it still runs while Python ends ("terminate called without an active exception").
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
