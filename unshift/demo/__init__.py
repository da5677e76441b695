"""The page where shifted digits snap back: its files, the static folder, and the small server.

``runtime`` finds the browser's ONNX runtime, ``samples`` has the pictures to start from, ``models``
exports, ``genomes`` has what the tab of genomes needs, ``site`` writes the folder, ``server`` serves it.

The page itself is ``page/``: plain files, no build step. All inference is in the browser.
"""
