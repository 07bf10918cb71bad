"""The quota ledger: append-only SQL journal. Nothing outside this package writes its tables."""
