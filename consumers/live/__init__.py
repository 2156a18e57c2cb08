"""Open pages: the queries they watch, kept up to date by matching new messages alone.

`hub` is the thread that does it, once a second. `pages` knows who watches what; each query is a
`standing` one, which remembers the keys of its newest matches (`window`); `pending` gathers what
the store tells between two ticks, and each page has its `subscription`, from which it takes the
newest state whenever it is ready for it.
"""

from consumers.live.hub import Hub
from consumers.live.pages import Asked, NotWatchedError
from consumers.live.subscription import Event, Subscription
from consumers.live.telling import Teller

__all__ = ["Asked", "Event", "Hub", "NotWatchedError", "Subscription", "Teller"]
