"""Whether what a question asks for is within the limits of its bundle.

Asked twice: where the question comes in, and again for the bundle that answers it, which may have been reloaded since.
"""

from collections.abc import Iterator

from recall_service.errors import Violation
from recall_service.serving.query import BundleInfo


def size_violations(bundle: BundleInfo, *, num_items: int, beam_width: int, num_tokens: int) -> list[Violation]:
    """What is larger than the bundle allows, by its path in the request. num_tokens: of a prompt; 0 for a history."""
    if (
        num_items <= bundle.max_num_items
        and beam_width <= bundle.max_beam_width
        and num_tokens <= bundle.max_prompt_tokens
    ):
        return []  # as nearly always
    return list(_violations(bundle, num_items, beam_width, num_tokens))


def _violations(bundle: BundleInfo, num_items: int, beam_width: int, num_tokens: int) -> Iterator[Violation]:
    if num_tokens > bundle.max_prompt_tokens:
        limit = f"bundle {bundle.name} takes at most {bundle.max_prompt_tokens:,}"
        yield Violation("prompt.token_ids", f"{num_tokens:,} token ids; {limit}")
    for field, asked, most in (
        ("num_items", num_items, bundle.max_num_items),
        ("beam_width", beam_width, bundle.max_beam_width),
    ):
        if asked > most:
            yield Violation(field, f"{asked:,}; bundle {bundle.name} allows at most {most:,}, and 0 means its default")
