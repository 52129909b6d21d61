"""The border where other people's tensors are known: checkpoints, GGUF files, tokenizers, the book's own model."""
