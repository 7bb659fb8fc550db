"""Random histories of all operations, by several processes, against the plain store."""
