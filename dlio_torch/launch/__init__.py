"""Jobs of a scheduler: the script of the verb ``launch``, and handing it over."""
