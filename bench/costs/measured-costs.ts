import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Costs, OneApi } from './simulated-redis.ts';

/** Costs as `costs.ts` measured them. */
export const FILE = join(import.meta.dirname, 'costs.json');

/** The costs as last measured, on what, and what a simulation makes of them. */
export function lastCosts(): {
  machine: readonly string[];
  costs: Costs;
  simulated: readonly OneApi[];
} {
  return JSON.parse(readFileSync(FILE, 'utf8'));
}
