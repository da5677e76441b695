"""The demo page: exported restorers and classifiers that run in the browser. ``page/`` needs no build step."""
