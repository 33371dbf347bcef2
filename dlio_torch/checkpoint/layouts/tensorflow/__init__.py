"""Layout ``tensorflow``: the files of TensorFlow's Saver."""
