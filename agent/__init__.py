"""The program on a GPU node: it reads hardware facts, keeps them safe on disk and delivers them to a Goodput server.

Imports no Django and no other folder of this project. Runs on Python 3.9 or newer with msgpack and nvidia-ml-py;
cryptography is optional (without it batches go unsigned).
"""

__version__ = "0.1.0"
