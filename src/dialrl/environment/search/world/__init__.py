"""The embedded world of the environment ``search``: fictional people and towns, made by code.

``facts`` makes it, ``texts`` words its passages and questions, ``speech`` plays it well and badly. Nothing to download.
"""
