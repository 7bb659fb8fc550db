"""The store on SQLite: files and connections, the queue of writers, and how reads run."""
