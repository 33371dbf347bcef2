"""Sizes of DLIO's checkpoints, and the files that each rank saves.

The formulas are those of ``dlio_benchmark/checkpointing/base_checkpointing.py``: a transformer of ``l`` layers
has the layers 0 (embedding), 1 to l, l + 1 (output) and l + 2 (its norm); transformer layers are dealt to the
pipeline stages, every layer is cut by tensor parallelism, and with ZeRO stage 3 by data parallelism too.  The
optimizer holds three numbers a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_SIZES = {"int8": 1, "uint8": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
DATATYPES = tuple(_SIZES)


@dataclass(frozen=True)
class RankFile:
    """One file of a checkpoint: its name without suffix, and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class ModelShape:
    """DLIO's description of a model.

    Attributes:
        size: bytes of a model that is not described by layers.
        num_layers: transformer layers.
        layer_parameters: bytes of the tensors of each layer, where they are listed.
        optimization_groups: bytes of the optimizer's tensors, where they are listed.
        vocab_size, hidden_size, ffn_hidden_size, num_attention_heads, num_kv_heads: sizes of a transformer.
        model_datatype, optimizer_datatype: stored element types of parameters and optimizer.
        tensor, pipeline, data: degrees of parallelism.
        zero_stage: stage of ZeRO, 0 to 3.
    """

    size: int = 10240
    num_layers: int = 0
    layer_parameters: tuple[int, ...] = ()
    optimization_groups: tuple[int, ...] = ()
    vocab_size: int = 32000
    hidden_size: int = 2048
    ffn_hidden_size: int = 8192
    num_attention_heads: int = 32
    num_kv_heads: int = 8
    model_datatype: str = "fp16"
    optimizer_datatype: str = "fp32"
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    zero_stage: int = 0

    @property
    def ranks(self) -> int:
        """Number of ranks that share the model."""
        return self.tensor * self.pipeline * self.data

    @property
    def parameters(self) -> int:
        """Number of parameters of the transformer (get_num_parameters)."""
        if not self.num_layers:
            return 0
        tensors = [self.hidden_size * self.vocab_size, *self._attention(), *self._mlp()]
        embedding, layer = tensors[0], sum(tensors[1:]) + 2 * self.hidden_size
        return 2 * embedding + layer * self.num_layers + self.hidden_size

    def layer_bytes(self, layer: int) -> int:
        """Bytes of ``layer`` in the file of one rank of the tensor-parallel group (get_layer_parameters)."""
        if self.layer_parameters:
            return sum(size // self.tensor for size in self.layer_parameters)
        cut = self.data if self.zero_stage == 3 else 1
        if layer in (0, self.num_layers + 1):
            tensors = [self.hidden_size * self.vocab_size // self.tensor // cut]
        elif layer == self.num_layers + 2:
            tensors = [self.hidden_size // cut]
        else:
            tensors = [size // self.tensor // cut for size in (*self._attention(), *self._mlp())]
            tensors += [self.hidden_size // cut] * 2
        return sum(tensors) * _SIZES[self.model_datatype]

    def layers(self, stage: int) -> range:
        """Layers of a pipeline stage (get_layer_index)."""
        share, more = divmod(self.num_layers, self.pipeline)
        first = stage * share + min(stage, more) + 1
        last = first + share + (stage < more) - 1
        if not self.layer_parameters:
            first = 0 if stage == 0 else first
            last = self.num_layers + 2 if stage == self.pipeline - 1 else last
        return range(first, last + 1)

    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer's state in the file of one rank (get_optimization_groups)."""
        if self.optimization_groups:
            # Listed groups are written twice each, and once combined, as bytes.
            return 3 * sum(self.optimization_groups)
        parts = self.tensor * self.pipeline * (self.data if self.zero_stage else 1)
        count = self.parameters // parts
        return 3 * (count + 5 * self.hidden_size) * _SIZES[self.optimizer_datatype] if count else 0

    def saved_bytes(self) -> tuple[int, int]:
        """Bytes that all ranks of a transformer save together: weights, and the optimizer's state."""
        layers = sum(self.layer_bytes(layer) for layer in range(self.num_layers + 3))
        copies = self.tensor * (self.data if self.zero_stage == 3 else 1)
        return layers * copies, self.optimizer_bytes() * self.savers()

    def files(self, transformer: bool) -> list[RankFile]:
        """Files of one rank, the same for each rank that saves; their sum over these ranks is exact up to rounding.

        DLIO's ranks differ: pipeline stages hold different layers, and with ZeRO stages 1 and 2 only the first
        data-parallel group saves layers.  Here each rank saves its part of the mean.
        """
        parts = [] if transformer or not self.size else [RankFile("model_states", self.size)]
        parts += self._layer_files()
        optimizer = self.optimizer_bytes()
        return [*parts, RankFile("optim_states", optimizer)] if optimizer else parts

    def savers(self) -> int:
        """Number of ranks that save: without ZeRO, those of the first data-parallel group."""
        return self.tensor * self.pipeline * (self.data if self.zero_stage else 1)

    def even(self) -> bool:
        """Whether DLIO's ranks save files of equal size as well."""
        return self.pipeline == 1 and (self.data == 1 or self.zero_stage in (0, 3))

    def _layer_files(self) -> Iterator[RankFile]:
        if not self.num_layers:
            return
        stages = [[self.layer_bytes(layer) for layer in self.layers(stage)] for stage in range(self.pipeline)]
        copies = self.data if self.zero_stage in (1, 2) else 1  # data-parallel ranks that share one copy
        total = sum(map(sum, stages)) / self.pipeline / copies
        if self.zero_stage in (1, 2) and self.pipeline > 1:
            count = max(1, round(sum(map(len, stages)) / self.pipeline / copies))
            for i in range(count):
                yield RankFile(f"layer_{i}-model_states", round(total / count))
        elif total:
            yield RankFile("model_states", round(total)) if self.zero_stage else RankFile("layer_states", round(total))

    def _attention(self) -> tuple[int, int]:
        keys = self.hidden_size // self.num_attention_heads * self.num_kv_heads
        return self.hidden_size * (self.hidden_size + 2 * keys), self.hidden_size * self.hidden_size

    def _mlp(self) -> tuple[int, int]:
        # A gated linear unit has two matrices on the way up.
        return self.hidden_size * 2 * self.ffn_hidden_size, self.hidden_size * self.ffn_hidden_size
