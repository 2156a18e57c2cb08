"""The newest messages, kept in SQLite so that people can search them.

`store` is the front: it takes messages in, answers searches and counts, and forgets. `query` reads
what a person typed; `rows` holds the values that come out; `batch_index` matches a few new messages
with live queries. Behind these, `sampler` samples and queues, and on the store's own thread
`writer` has `row_builder` turn messages into rows and `transactions` write them.
"""

from consumers.search.batch_index import BatchIndex
from consumers.search.query import Query, QueryError, parse
from consumers.search.rows import Change, Counted, Found, FoundRow, MessageRow, RecentState
from consumers.search.store import FILE_NAME, RecentStore, RecentStoreError

__all__ = [
    "FILE_NAME",
    "BatchIndex",
    "Change",
    "Counted",
    "Found",
    "FoundRow",
    "MessageRow",
    "Query",
    "QueryError",
    "RecentState",
    "RecentStore",
    "RecentStoreError",
    "parse",
]
