"""The training scripts of the shipped restorers: ``python -m reproduction.train.NAME --out FILE``, one each."""
