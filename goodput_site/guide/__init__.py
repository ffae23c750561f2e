"""The guide: public pages, install scripts, Compose files and releases, served to whoever asks. Needs no login.

text/*.md holds every sentence once; pages and the plain text are two views of it.
"""
