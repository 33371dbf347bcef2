"""Configuration: the schema of all options, and how recipes and arguments become one of its objects.

The modules are imported by name (``dlio_torch.config.compose``), so that code which only needs the
dataclasses of ``schema.py`` does not import OmegaConf.
"""
