"""The newest messages, kept in SQLite so that people can search them.

`store` answers searches; it is the front, which takes messages in, counts and forgets too.
`query_syntax` reads what a person typed, `matching` finds the rows that it means; `rows` holds the
values that come out; `comparison` sets queries side by side; `live_query` matches new messages with
what open pages watch, and `live_updater` tells of these and of shares that rise; `history` counts
all messages over time. Behind these, `sampler` samples and queues what comes, and on the store's
own thread `writer` has `transactions` write it to the file (`database`).
"""
