"""Configuration: the schema of all options, and the composition of a recipe and arguments into one configuration.

The modules are imported by name (``dlio_torch.config.compose``), so that code which only needs the
dataclasses of ``schema.py`` does not import OmegaConf.
"""
