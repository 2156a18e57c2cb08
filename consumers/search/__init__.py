"""The newest messages, kept in SQLite so that people can search them.

`recent` is the front: it takes messages in, answers searches and counts, and forgets. `query` reads
what a person typed; `rows` holds the values that come out; `batch_index` matches a few new messages
with standing queries. Behind these, `intake` samples and queues, and on the store's own thread
`writer` has `making` turn messages into rows and `keeper` write them.
"""

from consumers.search.batch_index import BatchIndex
from consumers.search.query import Query, QueryError, parse
from consumers.search.rows import Change, Counted, Found, FoundRow, RecentState, Row
from consumers.search.store import FILE_NAME, Recent, StoreError

__all__ = [
    "FILE_NAME",
    "BatchIndex",
    "Change",
    "Counted",
    "Found",
    "FoundRow",
    "Query",
    "QueryError",
    "Recent",
    "RecentState",
    "Row",
    "StoreError",
    "parse",
]
