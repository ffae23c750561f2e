"""The offline verifier of claim packs: `python -m claims.verify PACK`. Standard library only; `cryptography` and
`msgspec` are used where they are present. Nothing here opens a connection.
"""
