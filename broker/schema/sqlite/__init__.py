"""How the schema is read, and a migration's transaction run, on SQLite."""
