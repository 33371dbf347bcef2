"""Workload files of DLIO and of MLPerf Storage -> recipes.

``convert`` is the way in: it reads one workload file and gives the text of a recipe, what became of each of
its keys, and what DLIO does otherwise.  The meaning of the keys is that of ``dlio_benchmark/utils/config.py``,
``main.py``, ``checkpointing/base_checkpointing.py``, ``data_loader/torch_data_loader.py`` and
``reader/tf_reader.py`` in argonne-lcf/dlio_benchmark, and of its ``docs/source/config.rst``; names that older
versions used are read as well.
"""

from dlio_torch.interop.dlio.convert import Converted, convert

__all__ = ["Converted", "convert"]
