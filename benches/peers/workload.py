"""Token ids, as `peers prepare` writes them (`benches/workload.rs`), and padded batches of them."""

import numpy as np

PADDING = 1


def read(data, name):
    """The documents of `name`: a list of arrays of token ids."""
    ids, lengths = (np.load(data / f"{name}.{part}.npy") for part in ("ids", "lengths"))
    return np.split(ids, np.cumsum(lengths)[:-1])


def write(data, name, documents):
    """What `read` reads."""
    np.save(data / f"{name}.ids.npy", np.concatenate(documents).astype(np.int32))
    np.save(data / f"{name}.lengths.npy", np.array([len(ids) for ids in documents], np.int32))


def batches(documents, size):
    """Indices of the documents, longest first, `size` at a time."""
    order = sorted(range(len(documents)), key=lambda i: -len(documents[i]))
    return [order[at : at + size] for at in range(0, len(order), size)]


def padded(documents, group):
    """`input_ids` and `attention_mask` [B, T], i64, of the documents `group`."""
    shape = len(group), max(len(documents[i]) for i in group)
    ids, mask = np.full(shape, PADDING, np.int64), np.zeros(shape, np.int64)
    for row, i in enumerate(group):
        ids[row, : len(documents[i])] = documents[i]
        mask[row, : len(documents[i])] = 1
    return ids, mask
