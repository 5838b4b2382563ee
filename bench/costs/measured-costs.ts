import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Costs, OneApi } from './simulated-redis.ts';

/** The file with the costs that `costs.ts` measured. */
export const FILE = join(import.meta.dirname, 'costs.json');

/** Returns the last measured costs, the machine, and the results of the simulation. */
export function lastCosts(): {
  machine: readonly string[];
  costs: Costs;
  simulated: readonly OneApi[];
} {
  return JSON.parse(readFileSync(FILE, 'utf8'));
}
