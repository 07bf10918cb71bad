"""Steps of the ledger's schema, run by bridge.ledger.migration."""
