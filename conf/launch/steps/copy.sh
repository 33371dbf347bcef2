# Each node's ranks copy what they read to its own storage, and remove it when they are done.
arguments+=(stage.dir=%{local})
