"""Corrections: labels and deletions that people send, as one more log that the model learns from.

    request ──► CorrectionService ── append, sync ──► log: journal or Kafka topic
                                                        │ read back
                                                        ▼
          CorrectionApplier (consuming thread) ◄── LogReader (a thread of its own)

Nothing outside a log ever teaches. A correction is answered for once it is safe in the log, and
applied once it has been read back, between two batches of the stream; its position is saved with
the counts. So a kill neither loses a correction nor applies it twice.

A teacher (`labels.teacher`) hands its labels in here too, as what a call answers is in no log.

Limits. What a message taught is known as long as it is among the recent messages. A message that
comes twice in the stream taught twice; a correction takes the newer one back. A daemon applies the
corrections of the partitions that it reads: a member that takes a partition over does not apply its
earlier ones. An example that came with a request teaches every daemon that reads the log, and no
message deletes it.
"""
