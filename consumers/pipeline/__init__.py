"""From a polled batch to a checkpoint: reader, batch queue, loop and checkpoint writer."""
