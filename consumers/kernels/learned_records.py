"""Where records of an id are, where their values lie in chunks, and what they come to.

See `consumers/pipeline/learned_records.py` for the records, `consumers/pipeline/revision.py` for
the rules by which `fold` goes through the messages of some ids.

A batch's deletes name records all over the memory, so a chunk is rarely asked for two of them: each
is looked up by itself, from the head of its chunk on.

What is done for each batch keeps the interpreter's lock: a batch asks for some hundred ids, which
take some ten microseconds, and to get the lock back from a busy thread takes half a millisecond.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from consumers.kernels.json_scan import Raw
from streamnb.kernels.jit import inner, kernel, short_kernel
from streamnb.kernels.layout import F64, I32, I64, U8, U64, Flags, I64Grid, Int, Texts, load_eight

MAGIC = int.from_bytes(b"SNL1", "little")
HEAD_BYTES, FIELD_BYTES = 32, 16
_RECORDS_AT, _FIELDS_AT, _STRUCTURE_AT = 4, 8, 20
# What `locate` finds of a record, each a column; then where each field begins and ends.
KIND, OFFSET, LABEL, ID, FIELDS = 0, 1, 2, 3, 5
NOBODY = -1  # ends a chain
ANY_CLASS = 1 << 31  # as a number of classes: labels may be of any


@inner
def _long(data: Raw, at: Int) -> Int:
    return np.int64(load_eight(data, at))


@inner
def _short(data: Raw, at: Int) -> Int:
    return np.int64(load_eight(data, at) & np.uint64(0xFFFFFFFF))


def array_places(at: Int, n: Int, n_fields: Int) -> tuple[Int, Int, Int, Int]:
    """Return where a chunk's offsets, its labels, and the ends of its ids and of its texts lie."""
    begin = at + HEAD_BYTES + FIELD_BYTES * n_fields
    return begin, begin + 8 * n, begin + 12 * n, begin + 20 * n


_array_places = inner(array_places)


@inner
def _ids_at(data: Raw, at: Int, row: Int) -> Int:
    """Return where the ids of a chunk begin; −1 if there is no chunk with such a row."""
    if at + HEAD_BYTES > len(data) or _short(data, at) != MAGIC:
        return -1
    n, n_fields = _short(data, at + _RECORDS_AT), _short(data, at + _FIELDS_AT)
    heads, body = at + HEAD_BYTES, at + HEAD_BYTES + _short(data, at + _STRUCTURE_AT)
    _, _, _, ids = _array_places(at, n, n_fields)
    if row >= n or ids > body or body + n > len(data):
        return -1
    for k in range(n_fields):
        ids += 0 if _long(data, heads + FIELD_BYTES * k) else 8 * n
    return ids if ids <= body else -1


@inner
def _find_text(
    data: Raw, begin: Int, ends_at: Int, row: Int, found: I64Grid, i: Int, to: Int
) -> Int:
    """Note where a text begins and ends, −1 if it is missing; return how far it reaches."""
    first = _long(data, ends_at + 8 * (row - 1)) if row > 0 else 0
    last = _long(data, ends_at + 8 * row)
    first = -1 - first if first < 0 else first
    found[i, to] = begin + first
    found[i, to + 1] = -1 if last < 0 else begin + last
    return len(data) + 1 if 0 <= last < first else begin + last


@short_kernel
def locate(data: Raw, firsts: I64, places: I64, wanted: I64, found: I64Grid) -> Int:
    """Find records, ascending; return how many are sound.

    The chunks begin with the records `firsts`, at the bytes `places`. `found` has a row for each
    record, and −1 for an end of what is missing.
    """
    chunk = 0
    for i in range(len(wanted)):
        while chunk + 1 < len(firsts) and firsts[chunk + 1] <= wanted[i]:
            chunk += 1
        at, row = places[chunk], wanted[i] - firsts[chunk]
        ids = _ids_at(data, at, row)
        if ids < 0:
            return i
        n, n_fields = _short(data, at + _RECORDS_AT), _short(data, at + _FIELDS_AT)
        heads, body = at + HEAD_BYTES, at + HEAD_BYTES + _short(data, at + _STRUCTURE_AT)
        offsets, labels, ends, _ = _array_places(at, n, n_fields)
        found[i, KIND] = data[body + row]
        found[i, OFFSET] = _long(data, offsets + 8 * row)
        label = _short(data, labels + 4 * row)
        found[i, LABEL] = label - (1 << 32) if label >> 31 else label
        content = body + n
        reach = _find_text(data, ids, ends, row, found, i, ID)
        for k in range(min(n_fields, (found.shape[1] - FIELDS) // 2)):
            to = FIELDS + 2 * k
            if content < body:  # one before it has a size below 0
                return i
            if _long(data, heads + FIELD_BYTES * k):
                found[i, to] = content + 8 * row
                found[i, to + 1] = content + 8 * row + 8
                reach = max(reach, found[i, to + 1])
            else:
                ends += 8 * n
                reach = max(reach, _find_text(data, content, ends, row, found, i, to))
            content += _long(data, heads + FIELD_BYTES * k + 8)
        if reach > len(data):
            return i
    return len(wanted)


@inner
def _reach(data: Raw, ends_at: Int, n: Int) -> Int:
    """Return how far texts reach, by their ends; −1 if one ends before the one before it."""
    reach: Int = 0
    for row in range(n):
        end: Int = _long(data, ends_at + 8 * row)
        end = -1 - end if end < 0 else end
        if end < reach:
            return -1
        reach = end
    return reach


@short_kernel
def is_sound(data: Raw, at: Int, n_classes: Int) -> bool:
    """Return whether the chunk up to the end has labels of classes, or none, and sound columns.

    Its texts lie one behind the other in their column, and all columns in the chunk: whoever writes
    a checksum can write any number.
    """
    ids = _ids_at(data, at, -1)
    if ids < 0:
        return False
    n, n_fields = _short(data, at + _RECORDS_AT), _short(data, at + _FIELDS_AT)
    heads, body = at + HEAD_BYTES, at + HEAD_BYTES + _short(data, at + _STRUCTURE_AT)
    _, labels, ends, _ = _array_places(at, n, n_fields)
    for row in range(n):
        label = _short(data, labels + 4 * row)
        if label >= n_classes and label != 0xFFFFFFFF:  # −1
            return False
    reach = _reach(data, ends, n)
    if not 0 <= reach <= body - ids:
        return False
    content = body + n
    for k in range(n_fields):
        size = _long(data, heads + FIELD_BYTES * k + 8)
        reach = 8 * n
        if not _long(data, heads + FIELD_BYTES * k):
            ends += 8 * n
            reach = _reach(data, ends, n)
        if not 0 <= reach <= size <= len(data) - content:
            return False
        content += size
    return True


@short_kernel
def n_bytes(found: I64Grid) -> Int:
    """Return how many bytes all values of some records have."""
    n = 0
    for i in range(len(found)):
        for k in range(ID, found.shape[1], 2):
            n += found[i, k + 1] - found[i, k] if found[i, k + 1] >= 0 else 0
    return n


@short_kernel
def collect(data: Raw, found: I64Grid, out: U8, place: Int) -> Int:
    """Copy all values of records to a place on, and note where they lie now; return the end."""
    for i in range(len(found)):
        for k in range(ID, found.shape[1], 2):
            begin, end = found[i, k], found[i, k + 1]
            found[i, k] = place
            if end < 0:
                continue
            for at in range(begin, end):
                out[place] = data[at]
                place += 1
            found[i, k + 1] = place
    return place


@short_kernel
def enter(hashes: U64, begin: Int, end: Int, heads: I32, after: I32) -> None:
    """Enter records into the chains of their hashes; `heads` has a power of two of them."""
    for i in range(begin, end):
        at = np.int64(hashes[i] & np.uint64(len(heads) - 1))
        after[i] = heads[at]
        heads[at] = i


@short_kernel
def find(wanted: U64, hashes: U64, heads: I32, after: I32, found: I64) -> Int:
    """Find the records with one of some hashes; return how many, also if there is no room."""
    n = 0
    for i in range(len(wanted)):
        at = heads[np.int64(wanted[i] & np.uint64(len(heads) - 1))]
        while at != NOBODY:
            if hashes[at] == wanted[i]:
                if n < len(found):
                    found[n] = at
                n += 1
            at = after[at]
    return n


@short_kernel
def note_known(wanted: U64, hashes: U64, heads: I32, after: I32, known: Flags) -> None:
    """Note which hashes are among those of records."""
    for i in range(len(wanted)):
        at = heads[np.int64(wanted[i] & np.uint64(len(heads) - 1))]
        while at != NOBODY and not known[i]:
            known[i] = hashes[at] == wanted[i]
            at = after[at]


@inner
def _is_same(left: Texts, i: Int, right: Texts, j: Int) -> bool:
    begin, other = int(left.starts[i]), int(right.starts[j])
    size = int(left.ends[i]) - begin
    if int(right.ends[j]) - other != size:
        return False
    k = 0
    while k < size and left.data[begin + k] == right.data[other + k]:
        k += 1
    return k == size


@short_kernel
def number_ids(known: Texts, own: Texts, hashes: U64, heads: I32, after: I32, ids: I64) -> Int:
    """Give each id of two sets of texts, one behind the other, a number; return how many there are.

    `heads` has a power of two of them, all at `NOBODY`.
    """
    n_known, n = len(known.ends), 0
    for i in range(len(hashes)):
        texts, row = (known, i) if i < n_known else (own, i - n_known)
        slot = np.int64(hashes[i] & np.uint64(len(heads) - 1))
        at = heads[slot]
        while at != NOBODY:
            other, place = (known, at) if at < n_known else (own, at - n_known)
            if hashes[at] == hashes[i] and _is_same(texts, row, other, place):
                break
            at = after[at]
        if at != NOBODY:
            ids[i] = ids[at]
            continue
        ids[i], n = n, n + 1
        after[i], heads[slot] = heads[slot], i
    return n


def numbered(known: Texts, own: Texts, hashes: U64) -> tuple[I64, int]:
    """Return a number from 0 for each id of two sets of texts, and how many there are."""
    n, ids = len(hashes), np.empty(len(hashes), np.int64)
    heads = np.full(1 << n.bit_length(), NOBODY, np.int32)
    n_ids = number_ids(known, own, hashes, heads, np.empty(n, np.int32), ids)
    return ids, int(n_ids)


@kernel
def raise_to_last(
    texts: Texts, hashes: U64, ids: Texts, known: U64, heads: I32, after: I32, offsets: I64,
    last: I64,
) -> None:  # fmt: skip
    """Raise `last` of each text that is one of some ids to the offset of that id."""
    for i in range(len(hashes)):
        at = heads[np.int64(hashes[i] & np.uint64(len(heads) - 1))] if len(heads) else NOBODY
        while at != NOBODY:
            if known[at] == hashes[i] and _is_same(texts, i, ids, at):
                last[i] = max(last[i], offsets[at])
            at = after[at]


@kernel
def clear(data: U8, begins: I64, ends: I64) -> None:
    """Overwrite bytes with zeros."""
    for i in range(len(begins)):
        data[begins[i] : ends[i]] = 0


# The kinds of records, as files have them.
CREATED, UPDATED, RELABELLED, DELETED, EARLY_UPDATE, EARLY_DELETE, CONSUMED = range(7)
CORRECTED, TAKEN_BACK, ERASED, WITHDRAWN = 7, 8, 9, 16  # withdrawn: may be labelled again
# Of messages whose label comes later: they wait, their update waits, a label found them, a default
# did, an update took their label over; and a label that waits for its message.
WAITING, WAITING_UPDATE, LATE_LABELLED, DEFAULTED, LATE_UPDATE, EARLY_LABEL = range(10, 16)
NOTHING, NO_LABEL = 255, -1
UPDATE, DELETE = 1, 2  # as in `consumers.messages`
DELETE_OF_ACCOUNT = 3  # one of the deletes that the deletion of an account stands for
# States of a message that waits or waited; of the last a person took back what it would teach.
WAITS, DEFAULT, LABELLED, GONE, LABEL_WITHDRAWN = range(5)
# Places of `counts`.
UPDATE_MATCHED, UPDATE_UNMATCHED, DELETE_MATCHED, DELETE_UNMATCHED, DELETE_REPEATED = range(5)


class Events(NamedTuple):
    """Records of some ids and then the messages of a batch, each in the order of their log."""

    ids: I64  # numbers from 0
    numbers: I64  # a message's is filled in
    kinds: I64  # a message's is that before it was looked up; then what is to be remembered
    offsets: I64
    labels: I64  # -2 - class of a record, a message's own code else; an update may get another's
    times_ms: F64  # of what waits; nan if unknown


class Chains(NamedTuple):
    """What is known of each id so far; chains of events begin here and end at `NOBODY`."""

    first: I64  # by id: all of its events
    latest: I64
    living: I64  # those that teach now
    youngest: I64
    early: I64  # the record that says that the message is to come
    last: I64  # the last record
    following: I64  # by event: the next of the id
    after: I64  # the next one living
    # Messages of an id that wait or waited, each in a slot:
    begun: I64  # the event with which it began
    latest_version: I64  # the event that has its contents now
    defaults: I64  # the one by which it was learned as the default, unless it was updated since
    states: I64
    times_ms: F64


def no_chains(n_ids: int, n_events: int) -> Chains:
    """Return chains and slots before the first event."""
    by_id, by_event = np.full((6, n_ids), NOBODY), np.full((6, n_events), NOBODY)
    return Chains._make([*by_id, *by_event, np.empty(n_events)])


def is_teaching(kind: Any) -> Any:
    """Return whether records of a kind teach; of an array of kinds, which of them do."""
    is_of_stream = (kind <= RELABELLED) | (kind == EARLY_UPDATE)
    return is_of_stream | (kind == CORRECTED) | ((kind >= LATE_LABELLED) & (kind <= LATE_UPDATE))


_is_teaching = inner(is_teaching)
TEACHING = is_teaching(np.arange(256))  # by kind: to look up costs less than to compare again


@inner
def _is_replacing(kind: Int) -> bool:
    if UPDATED <= kind <= EARLY_UPDATE:
        return True
    return kind in (WAITING_UPDATE, LATE_UPDATE)


@inner
def _is_of_other(kind: Int) -> bool:
    """Return whether a record says what became of the message at its offset."""
    if kind in (CORRECTED, TAKEN_BACK, WITHDRAWN):
        return True
    return kind in (LATE_LABELLED, DEFAULTED)


@inner
def _end_living(i: Int, events: Events, chains: Chains) -> None:
    """Take what the event `i` speaks of out of what teaches."""
    own, before = events.ids[i], np.int64(NOBODY)
    at = chains.living[own]
    while at != NOBODY:
        if events.offsets[at] != events.offsets[i]:
            before = at
        elif before == NOBODY:
            chains.living[own] = chains.after[at]
        else:
            chains.after[before] = chains.after[at]
        at = chains.after[at]
    chains.youngest[own] = before


@inner
def _add(i: Int, events: Events, chains: Chains) -> None:
    """Take in the next event of an id."""
    own, kind = events.ids[i], events.kinds[i]
    if _is_replacing(kind):
        chains.living[own] = NOBODY
    elif _is_of_other(kind):
        _end_living(i, events, chains)
    if _is_teaching(kind):
        if chains.living[own] == NOBODY:
            chains.living[own] = i
        else:
            chains.after[chains.youngest[own]] = i
        chains.youngest[own] = i
    if kind in (EARLY_UPDATE, EARLY_DELETE):
        chains.early[own] = events.numbers[i]
    elif kind == CONSUMED:
        chains.early[own] = NOBODY
    chains.last[own] = events.numbers[i]
    if chains.first[own] == NOBODY:
        chains.first[own] = i
    else:
        chains.following[chains.latest[own]] = i
    chains.latest[own] = i


@inner
def _set_state(k: Int, state: Int, chains: Chains) -> None:
    if chains.states[k] != GONE:
        chains.states[k] = state


@inner
def _add_waiting(i: Int, begin: Int, end: Int, events: Events, chains: Chains) -> Int:
    """Take in the next event of an id, whose slots so far are `begin` … `end`; return their end."""
    kind = events.kinds[i]
    if kind == WAITING or (kind == WAITING_UPDATE and begin == end):
        chains.begun[end] = chains.latest_version[end] = i
        chains.defaults[end], chains.states[end] = NOBODY, WAITS
        chains.times_ms[end] = events.times_ms[i]
        return end + 1
    if kind in (WAITING_UPDATE, LATE_UPDATE):
        for k in range(begin, end - 1):
            chains.states[k] = GONE
        if end > begin:
            chains.latest_version[end - 1], chains.defaults[end - 1] = i, NOBODY
            _set_state(end - 1, WAITS if kind == WAITING_UPDATE else LABELLED, chains)
    elif _is_replacing(kind):
        for k in range(begin, end):
            chains.states[k] = GONE
    elif _is_of_other(kind):
        state = DEFAULT if kind == DEFAULTED else GONE if kind == TAKEN_BACK else LABELLED
        state = LABEL_WITHDRAWN if kind == WITHDRAWN else state
        for k in range(begin, end):
            offset = events.offsets[chains.latest_version[k]]
            # A person deletes the earlier messages of the id too.
            if offset == events.offsets[i] or (kind == TAKEN_BACK and offset < events.offsets[i]):
                _set_state(k, state, chains)
                if kind == DEFAULTED:
                    chains.defaults[k] = i
    return end


@inner
def _find_waiting(own: Int, floor: Int, begin: Int, events: Events, chains: Chains) -> Int:
    """Find the messages of an id that wait or waited, by its records from `floor` on.

    Return where their slots end, of which the first is `begin`.
    """
    end, at = begin, chains.first[own]
    while at != NOBODY:
        if events.numbers[at] >= floor:
            end = _add_waiting(at, begin, end, events, chains)
        at = chains.following[at]
    return end


@kernel
def fold_records(events: Events, chains: Chains, ends: I64) -> None:
    """Go through the records of some ids; note for each id where the slots of its messages end."""
    for i in range(len(events.ids)):
        _add(i, events, chains)
    end: Int = np.int64(0)
    for own in range(len(ends)):
        end = _find_waiting(own, np.int64(0), end, events, chains)
        ends[own] = end


@inner
def _created(i: Int, floor: Int, window_ms: float, events: Events, chains: Chains) -> Int:
    """Return the kind of a message that neither deletes nor updates."""
    if chains.early[events.ids[i]] >= floor:
        return CONSUMED
    if events.labels[i] != NO_LABEL:
        return CREATED
    if events.kinds[i] != WAITING:
        return NOTHING
    for k in range(_find_waiting(events.ids[i], floor, np.int64(0), events, chains)):
        if not abs(chains.times_ms[k] - events.times_ms[i]) > window_ms:  # nan lies in each
            return NOTHING
    return WAITING


@inner
def _revised(
    i: Int, operation: Int, floor: Int, is_late: bool, events: Events, chains: Chains, takers: I64,
    counts: I64,
) -> Int:  # fmt: skip
    """Return the kind of a delete or an update, and count it; note what it takes back.

    The deletion of an account is counted by itself, and says nothing of messages to come.
    """
    own = events.ids[i]
    n_alive, given, given_late, at = 0, np.int64(NOBODY), np.int64(NOBODY), chains.living[own]
    while at != NOBODY:
        if events.numbers[at] >= floor:
            n_alive += 1
            takers[at] = i
            if events.kinds[at] == CORRECTED or events.kinds[at] == RELABELLED:
                given = at
            if events.kinds[at] == LATE_LABELLED or events.kinds[at] == LATE_UPDATE:
                given_late = at
        at = chains.after[at]
    n_slots: Int = np.int64(0)
    if is_late:
        n_slots = _find_waiting(own, floor, np.int64(0), events, chains)
    n_open, is_known = n_alive, chains.last[own] >= floor
    for k in range(n_slots):
        n_open += 1 if chains.states[k] != GONE else 0
    # What a person withdrew may be labelled again, until it is deleted.
    is_withdrawn = is_known and events.kinds[chains.latest[own]] == WITHDRAWN
    is_matched = n_open > 0 or is_withdrawn
    if operation == UPDATE:
        counts[UPDATE_MATCHED if is_matched else UPDATE_UNMATCHED] += 1
        if given != NOBODY:
            events.labels[i] = events.labels[given]
            return RELABELLED
        if events.labels[i] != NO_LABEL:
            return UPDATED if is_known else EARLY_UPDATE
        if n_slots > 0 and chains.states[n_slots - 1] != GONE:
            events.times_ms[i] = chains.times_ms[n_slots - 1]
            if chains.states[n_slots - 1] in (WAITS, DEFAULT) or given_late == NOBODY:
                return WAITING_UPDATE
            events.labels[i] = events.labels[given_late]
            return LATE_UPDATE
    elif operation == DELETE:
        unmatched = DELETE_REPEATED if is_known else DELETE_UNMATCHED
        counts[DELETE_MATCHED if is_matched else unmatched] += 1
    # Versions without a label may have come since the last record: one given now is too late.
    if is_matched or (is_known and operation == DELETE):
        return DELETED
    return NOTHING if is_known or operation == DELETE_OF_ACCOUNT else EARLY_DELETE


@short_kernel
def fold(
    events: Events, chains: Chains, operations: I64, before: I64, n: Int, segment: Int,
    records_max: Int, window_ms: float, takers: I64, counts: I64,
) -> None:  # fmt: skip
    """Go through a batch's messages of some ids in the order of their log; set their kinds.

    `before` counts the batch's records before each message, `n` those of the log before it. A
    window below 0: labels do not come late. `taken` notes the events that are taken back.
    """
    n_known = len(events.ids) - len(operations)
    floor: Int = np.int64(0)
    for i in range(n_known):
        _add(i, events, chains)
    for k in range(len(operations)):
        i = n_known + k
        number, was = n + before[k], events.kinds[i]
        # Those of an account are one in the log: what they say must not push its messages out.
        is_alone = operations[k] != DELETE_OF_ACCOUNT or k == 0
        if is_alone or events.offsets[i - 1] != events.offsets[i]:
            floor = max(0, number // segment * segment - records_max)
        events.numbers[i] = number
        if operations[k] >= UPDATE:
            is_late = window_ms >= 0
            kind = _revised(i, operations[k], floor, is_late, events, chains, takers, counts)
        else:
            kind = _created(i, floor, window_ms, events, chains)
        events.kinds[i] = kind
        n += (1 if kind != NOTHING else 0) - (1 if was != NOTHING else 0)
        if kind != NOTHING:
            _add(i, events, chains)
