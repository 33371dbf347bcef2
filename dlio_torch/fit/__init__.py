"""A recording of any training becomes a recipe.

``recorded_training.py`` reads a recording of the verb ``trace``: data calls, and the loaders, samples and steps that
the import hook saw.  ``data_set.py`` and one module for each further part of a recipe turn it into findings: a value
for an option, with its evidence.  ``fit_recording.py`` calls them in order; ``result_folder.py`` writes the recipe;
``score.py`` runs it and compares the run with the recording.
"""
