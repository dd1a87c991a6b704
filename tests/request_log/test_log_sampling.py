"""Which recalls are logged, and what becomes of their user ids."""

from hashlib import blake2b
from pathlib import Path

import pytest

from recall_service.request_log.reader import read_log
from recall_service.request_log.sampling import is_sampled
from recall_service.request_log.user_ids import user_id_rule
from tests.request_log.recalls import Counts, make_files, make_log, make_record, make_request, tell

KEY = b"0123456789abcdef"


@pytest.mark.parametrize("share", [0.01, 0.25, 0.9])
def test_the_share_is_kept(share: float) -> None:
    num_sampled = sum(is_sampled(f"request-{number}", share) for number in range(20_000))
    assert abs(num_sampled / 20_000 - share) < 4 * (share * (1 - share) / 20_000) ** 0.5


def test_none_and_all() -> None:
    ids = [f"request-{number}" for number in range(1_000)]
    assert not any(is_sampled(request_id, 0.0) for request_id in ids)
    assert all(is_sampled(request_id, 1.0) for request_id in ids)


def test_what_a_small_share_holds_a_larger_one_holds_too() -> None:
    ids = [f"request-{number}" for number in range(1_000)]
    small, large = ({request_id for request_id in ids if is_sampled(request_id, share)} for share in (0.1, 0.3))
    assert small < large


def test_the_choice_is_the_same_in_every_process_and_version() -> None:
    """Replicas of two versions run side by side during a roll-out."""
    assert [number for number in range(40) if is_sampled(f"request-{number}", 0.1)] == [7, 8, 11, 13, 22]


def test_two_replicas_agree_and_count_the_rest(tmp_path: Path) -> None:
    found = []
    for replica in ("a", "b"):
        (tmp_path / replica).mkdir()
        counts = Counts()
        log = make_log(make_files(tmp_path / replica), counts, share=0.2)
        for number in range(500):
            tell(log, make_record(number))
        log.close()
        found.append([record.request.request_id for record in read_log(tmp_path / replica)])
        assert (counts.written, counts.sampled_out, counts.dropped) == (len(found[-1]), 500 - len(found[-1]), 0)
    assert found[0] == found[1]
    assert 50 < len(found[0]) < 150


def test_user_ids_are_kept_dropped_or_hashed() -> None:
    assert user_id_rule("keep", b"")("user-1") == "user-1"
    assert user_id_rule("drop", b"")("user-1") == ""
    hashed = user_id_rule("hash", KEY)
    assert hashed("user-1") == blake2b(b"user-1", key=KEY, digest_size=16).hexdigest()
    assert hashed("user-1") == hashed("user-1") != hashed("user-2")
    assert hashed("user-1") != user_id_rule("hash", KEY[::-1])("user-1")
    assert hashed("") == ""


def test_no_hash_without_a_key() -> None:
    with pytest.raises(ValueError, match="user ids are to be hashed, and there is no key"):
        user_id_rule("hash", b"")


@pytest.mark.parametrize("user_ids", ["drop", "hash"])
def test_a_hidden_user_id_is_in_no_file(user_ids: str, tmp_path: Path) -> None:
    log = make_log(make_files(tmp_path), Counts(), rule=user_id_rule(user_ids, KEY))  # type: ignore[arg-type]
    tell(log, make_record(0, make_request(user_id="jane.doe")))
    log.close()
    (record,) = read_log(tmp_path)
    assert b"jane" not in record.SerializeToString()
    assert record.request.history.item_ids == ["item-0", "item-b"]
