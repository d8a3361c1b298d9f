// The edge that answers this page: the edge_client that serves it.

export const ask = (path, init) => fetch(path, {...init, cache: 'no-store'});

// The message when the edge is gone.
export const gone = 'The edge does not answer. Is edge_client still running?';
