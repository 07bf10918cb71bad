"""One module per schema version. A step is never changed once it was released: databases have been through it."""
