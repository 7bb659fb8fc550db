"""What docs/threat_model.md says, tried."""
