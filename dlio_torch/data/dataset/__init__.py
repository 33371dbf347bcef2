"""The data set: manifest, file names, generation, the map-style Dataset, verification."""
