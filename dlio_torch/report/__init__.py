"""Reports: console text and HTML pages."""
