"""The paper's tables and figures, and measurements beyond them: ``python -m reproduction NAME`` from a clone.

``items/`` measures, ``results/`` keeps the records, ``train/`` makes the shipped restorers. Not part of the package
that is installed, and written with the public API of ``unshift`` alone.
"""
