import type { Registry } from 'prom-client';
import type { Callers } from './core/callers.ts';
import type { RefusalLog, Stamp } from './core/ports.ts';
import type { VerdictSource } from './core/verdict.ts';
import type { Handler, Routes } from './doors/http/server.ts';

/** The parts that calls about keys ask. */
export interface CallParts {
  readonly verifier: VerdictSource;
  /** undefined = anybody may ask. */
  readonly callers?: Callers | undefined;
  /** undefined = nobody remembers refusals. */
  readonly refusals?: RefusalLog | undefined;
}

/** A part of a verifier process that it can do without. `listeners.ts` lists all. */
export interface Extra {
  /** A stamp for gateways and proxy mode. */
  readonly stamp?: Stamp;
  /** Returns the calls that it answers, by their paths. Each asks `callers` first. */
  readonly calls?: (
    parts: CallParts,
    bodyBytesMax: number,
  ) => Readonly<Record<string, { readonly POST: Handler }>>;
  /** Routes of documents that anybody may read. */
  readonly documents?: Routes['exact'];
  /** Registers its metrics. */
  readonly watch: (registry: Registry) => void;
}
