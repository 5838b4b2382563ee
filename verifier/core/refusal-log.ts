import type { Verdict } from './verdict.ts';

/** A request that was refused. */
export interface RefusedRequest {
  /** As the answer has it; `''` = it has none. */
  readonly requestId: string;
  /** Address of the client; undefined = unknown. */
  readonly clientIp: string | undefined;
  /** Method and path of the client's request, without the query; undefined = unknown. */
  readonly route?: string | undefined;
}

/** Remembers refusals, for people who ask why. */
export interface RefusalLog {
  /** Notes a verdict, if it refuses a known key. */
  note(verdict: Verdict, request: RefusedRequest): void;
}

/** Returns the route of a request; undefined = its method or its target is unknown. */
export const routeOf = (method: string | undefined, target: string | undefined): string | undefined =>
  method && target ? `${method} ${target.split('?', 1)[0]}` : undefined;
