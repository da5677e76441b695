"""The demo page: exported restorers and classifiers that run in the browser.

``page/`` holds the page itself, plain files without a build step. ``site`` writes it to a folder, with samples,
exported ``models`` and the browser's ONNX ``runtime``; ``server`` serves that folder.
"""
