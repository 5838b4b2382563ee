/**
 * What breaks a rule of size or of names in test/tidy.test.ts, in the order of the alphabet. These lists only become shorter:
 * an entry that is no longer needed fails the test.
 */
export const TOO_LONG = {
  functions: [
    'bench/costs.ts: measure',
    'bench/fleet.ts: fleet',
    'bench/flood.ts: flood',
    'bench/limits.ts: exchanges',
    'bench/list-keys.ts: listKeys',
    'bench/many.ts: many',
    'bench/peers.ts: peers',
    'bench/propagation.ts: propagation',
    'bench/simulated-redis.ts: simulate',
    'verifier/fast-lane/scan-head.ts: scanHead',
  ],
  files: [],
};

/** Folders with too many files. */
export const TOO_FULL = ['bench', 'control-plane/core', 'control-plane/redis', 'verifier/core'];

/** Names of several files of a program that do different things. */
export const TWICE = [
  'control-plane: change-log',
  'control-plane: config',
  'control-plane: credits',
  'control-plane: fleet',
  'control-plane: main',
  'control-plane: new-record',
  'control-plane: openapi',
  'control-plane: permissions',
  'control-plane: redis',
  'control-plane: sweep-store',
  'control-plane: usage',
  'verifier: config',
  'verifier: limits',
  'verifier: options',
  'verifier: verifier',
];
