/**
 * What breaks a rule of size or of names in test/tidy.test.ts, in the order of the alphabet. These lists only become shorter:
 * an entry that is no longer needed fails the test.
 */
export const TOO_LONG = {
  functions: ['verifier/fast-lane/scan-head.ts: scanHead'],
  files: [],
};

/** Folders with too many files. */
export const TOO_FULL: readonly string[] = [];

/** Names of several files of a program that do different things. */
export const TWICE: readonly string[] = [];
