"""The program on the GPU node: it reads facts, keeps them in an outbox and uploads them. It imports no other folder."""
