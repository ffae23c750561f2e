"""The launcher: brings Goodput's parts up on one machine, watches them, and takes them down.

It imports no Django. The children (web, worker, beat, agent) learn everything from their environment.
"""
