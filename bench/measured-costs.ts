import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { OneApi } from './simulated-redis.ts';

/** Microseconds of CPU of Redis' main thread, where nothing else is said. */
export interface Costs {
  readonly createUs: number;
  /** A change with its message and its fence's look, without any verifier. */
  readonly updateUs: number;
  /** Of a change, for each verifier: its message. */
  readonly publishUs: number;
  /** Of a change, for each verifier: the SYNC that acknowledges it. */
  readonly ackUs: number;
  /** A SYNC with nothing new; each verifier sends one a second for each API. */
  readonly idleSyncUs: number;
  /** A key that a verifier asks for the first time: its pointer and its record. */
  readonly lookupUs: number;
  /** Bytes of Redis' memory. */
  readonly bytesPerKey: number;
  readonly bytesPerVerifier: number;
  /** CPU of the verifier for one verifyKey over HTTP, from memory. */
  readonly verifyUs: number;
}

/** What `costs.ts` measured. */
export const FILE = join(import.meta.dirname, 'costs.json');

/** The costs as last measured, on what, and what a simulation makes of them. */
export function lastCosts(): {
  machine: readonly string[];
  costs: Costs;
  simulated: readonly OneApi[];
} {
  return JSON.parse(readFileSync(FILE, 'utf8'));
}
