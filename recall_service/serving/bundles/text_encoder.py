"""The model's tokenizer, as much of it as prompts need."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from recall_service.errors import CheckpointError


class TextEncoder(Protocol):
    """Text -> token ids, with no special tokens added of its own accord."""

    def encode(self, text: str) -> list[int]:
        """Token ids of one text."""

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""


class HuggingFaceEncoder:
    """A Hugging Face tokenizer read from the checkpoint directory alone: no network, no code of the checkpoint's own.

    Raises CheckpointError when the directory holds no readable tokenizer, or one that fails at its work.
    """

    def __init__(self, directory: Path) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its thread pool would outlive a fork
        from transformers import AutoTokenizer  # seconds to import, and only needed where bundles are loaded

        self._directory = directory
        with self._refusing("no readable tokenizer"):
            self._tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)

    def encode(self, text: str) -> list[int]:
        """See TextEncoder."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """See TextEncoder."""
        with self._refusing("a tokenizer that cannot encode"):
            encoded: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return encoded

    @contextmanager
    def _refusing(self, problem: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  a broken file makes the library raise anything, now or when it is used
            message = str(error).partition("\n")[0]
            raise CheckpointError(
                f"{self._directory}: {problem} ({message}); copy tokenizer.json and tokenizer_config.json there"
            ) from None
