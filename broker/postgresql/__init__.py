"""The store on PostgreSQL: many connections side by side, locks on rows, and the order of the journal."""
