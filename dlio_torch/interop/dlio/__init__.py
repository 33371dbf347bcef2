"""Converts workload files of DLIO and of MLPerf Storage to recipes.

``convert`` turns one workload file into the text of a recipe, and reports keys that are not honoured and
differences in behaviour.  The meaning of the keys is that of ``dlio_benchmark/utils/config.py``,
``main.py``, ``checkpointing/base_checkpointing.py``, ``data_loader/torch_data_loader.py`` and
``reader/tf_reader.py`` in argonne-lcf/dlio_benchmark, and of its ``docs/source/config.rst``; names that older
versions used are read as well.
"""

from dlio_torch.interop.dlio.conversion import Converted, convert

__all__ = ["Converted", "convert"]
