// splitcompute.js: a language model that a server begins and this tab goes on with.

export interface Options {
  /** The server's API key; kept in memory only. */
  key?: string;
  /** The model's id; the server's first one where it has several. */
  model?: string;
  /** "auto" (the default), "cloud", or how many of the model's layers the server runs. */
  cut?: string | number;
  /** What "auto" is after: "offload" (the default) or "fast". */
  goal?: 'offload' | 'fast';
  /** Hears where the weights are kept, that no more fit on the disk, log lines, a worker that was begun again, and the end. */
  on?: (event: Event) => void;
  /** Any other long flag of edge_client. */
  [flag: string]: unknown;
}

export type Event =
  | {type: 'opened'; store: 'disk' | 'memory'}
  | {type: 'log'; line: string}
  | {type: 'full'}
  | {type: 'restarted'; message: string}
  | {type: 'failed'; message: string};

export interface GenerateOptions {
  max_tokens?: number;
  temperature?: number;
  seed?: number;
  signal?: AbortSignal;
  /** Any other field of POST /v1/completions. */
  [field: string]: unknown;
}

export interface Edge {
  /** The base URL for a client of OpenAI's routes. */
  readonly url: string;
  /** What this browser lacks, in words: the server then answers alone. Null where it has all. */
  readonly missing: string | null;
  /** fetch() for addresses below the server's: the edge in this tab answers. */
  fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response>;
  /** The text that follows the prompt, piece by piece. */
  generate(prompt: string, options?: GenerateOptions): AsyncGenerator<string, void, void>;
  /** GET /split/status: which layer runs where, and what has landed. */
  status(): Promise<any>;
  /** Ends the edge; what runs fails. */
  close(): void;
}

/** Opens an edge on the server at `url`. The first text comes from the server; layers land behind it. */
export function connect(url: string | URL, options?: Options): Promise<Edge>;
