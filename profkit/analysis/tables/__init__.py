"""The report's tables, one module each: views of traces in, rows out."""
