/**
 * What breaks a rule of size or of names in test/tidy.test.ts, in the order of the alphabet. These lists only become shorter:
 * an entry that is no longer needed fails the test.
 */
export const TOO_LONG = {
  functions: [
    'bench/changes/fleet.ts: fleet',
    'bench/changes/list-keys.ts: listKeys',
    'bench/changes/many.ts: many',
    'bench/changes/propagation.ts: propagation',
    'bench/compared/peers.ts: peers',
    'bench/costs/costs.ts: measure',
    'bench/requests/flood.ts: flood',
    'bench/requests/limits.ts: exchanges',
    'verifier/fast-lane/scan-head.ts: scanHead',
  ],
  files: [],
};

/** Folders with too many files. */
export const TOO_FULL: readonly string[] = [];

/** Names of several files of a program that do different things. */
export const TWICE: readonly string[] = [];
